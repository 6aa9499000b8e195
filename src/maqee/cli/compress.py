"""`maqee compress`: bits and thresholds together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import DataRoot, Device, MaxBops, MaxDrop, MinAccuracy, TrainedData, TrainedModel, TrainedTask


def compress(
    model: TrainedModel,
    data: TrainedData,
    out: Annotated[Path, typer.Option(help="New folder for plan, trace and model.")],
    data_root: DataRoot = None,
    task: TrainedTask = None,
    method: Annotated[str, typer.Option(help="Quantization method (see `maqee ls`).")] = "erq",
    avg_bits: Annotated[float, typer.Option(help="Average weight bits of the blocks.")] = 4.0,
    max_bops: MaxBops = None,
    min_accuracy: MinAccuracy = None,
    max_drop: MaxDrop = None,
    solver: Annotated[str, typer.Option(help="coordinate (the paper's) or exact, for thresholds and bits.")] = (
        "coordinate"
    ),
    lambda_outer: Annotated[float, typer.Option(help="Price of cost when thresholds are chosen.")] = 0.5,
    max_swaps: Annotated[
        int | None, typer.Option(help="Swaps of bits to try; 0 keeps them uniform. Twice the blocks when left out.")
    ] = None,
    patch: Annotated[str, typer.Option(help="Bits of the patch embedding, as 8/8, or float.")] = "float",
    classifier: Annotated[
        str, typer.Option(help="Bits of the final classifier (of a detector: both final heads), likewise.")
    ] = "float",
    samples: Annotated[
        int, typer.Option(help="Calibration images that risks are measured on, or as many as there are.")
    ] = 1024,
    fit_images: Annotated[int, typer.Option(help="Further calibration images that grids are fitted on.")] = 32,
    recover: Annotated[int, typer.Option(help="Training steps at the end; 0 is none.")] = 0,
    recover_swaps: Annotated[int, typer.Option(help="Training steps after every swap of bits.")] = 0,
    batch: Annotated[int | None, typer.Option(help="Images of a training step; 256, fewer if they are large.")] = None,
    lr: Annotated[float, typer.Option(help="Peak learning rate of recovery.")] = 1e-4,
    exit_weights: Annotated[
        str, typer.Option(help="Weights of exits in recovery: mass (of the policy) or depth.")
    ] = "mass",
    bf16: Annotated[bool, typer.Option("--bf16", help="Train in bfloat16, compiled.")] = False,
    risk: Annotated[
        str | None, typer.Option(help="Promise a small gap to full depth: crc, ucb or ltt, with --epsilon.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The gap that --risk may leave.")] = None,
    delta: Annotated[float, typer.Option(help="Probability with which ucb and ltt may fail.")] = 0.1,
    risk_loss: Annotated[
        str | None, typer.Option(help="zero-one or brier, for classification; other tasks use 1 - score.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    device: Device = None,
) -> None:
    """Choose bits and thresholds together, and write a plan and a quantized model that follows it.

    Run it again to go on after a stop; Ctrl-C leaves the best plan so far.
    """
    from maqee.apq import Budget, SearchOptions
    from maqee.compression import CompressOptions, RecoverySettings
    from maqee.compression import compress as compress_run
    from maqee.compression.guarantee import risk_options
    from maqee.quant import QuantSettings
    from maqee.quant.settings import parse_bits
    from maqee.report.tables import plan_table

    precision = "bf16" if bf16 else "fp32"
    recovery = RecoverySettings(batch_size=batch, lr=lr, weights=exit_weights, precision=precision, compile=bf16)  # type: ignore[arg-type]
    done = compress_run(
        model,
        data=data,
        data_root=data_root,
        budget=Budget(average_bits=avg_bits, max_bops=max_bops, min_metric=min_accuracy, max_drop=max_drop),
        search_options=SearchOptions.for_solver(
            solver, lambda_outer=lambda_outer, recovery_steps=recover_swaps, max_swaps=max_swaps
        ),
        options=CompressOptions(
            method=method,
            task=task,
            quantization=QuantSettings(
                patch=parse_bits(patch, "--patch"), classifier=parse_bits(classifier, "--classifier")
            ),
            fit_images=fit_images,
            samples=samples,
            scored=max(1, samples // 2),
            recovery_steps=recover,
            recovery=recovery,
            risk=risk_options(risk, epsilon, delta, risk_loss),
            seed=seed,
        ),
        out=out,
        device=device,
    )
    typer.echo(plan_table(done.plan))
    for note in done.notes:
        typer.echo(note)
    if not done.finished:
        typer.echo("Stopped early: this is the best so far. Run the same command again to go on.")
    typer.echo(f"Written to {out}. Next: maqee eval {out}")
