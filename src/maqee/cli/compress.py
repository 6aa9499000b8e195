"""`maqee compress`: bits and thresholds together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compress(
    model: Annotated[Path, typer.Option(help="A model with exits: a run folder of `maqee train`, or one stage of it.")],
    data: Annotated[str, typer.Option(help="Data set that it was trained on (see `maqee ls`).")],
    out: Annotated[Path, typer.Option(help="New folder for plan, trace and model.")],
    data_root: Annotated[Path | None, typer.Option(help="Where the data lies.")] = None,
    task: Annotated[str, typer.Option(help="Task (see `maqee ls`).")] = "classification",
    method: Annotated[str, typer.Option(help="Quantization method (see `maqee ls`).")] = "erq",
    avg_bits: Annotated[float, typer.Option(help="Average weight bits of the blocks.")] = 4.0,
    max_bops: Annotated[float | None, typer.Option(help="Most expected BOPs of an image.")] = None,
    min_accuracy: Annotated[
        float | None, typer.Option(help="Least accuracy (or the task's own metric) on calibration images, 0..1.")
    ] = None,
    solver: Annotated[str, typer.Option(help="coordinate (the paper's) or exact, for thresholds and bits.")] = (
        "coordinate"
    ),
    lambda_outer: Annotated[float, typer.Option(help="Price of cost when thresholds are chosen.")] = 0.5,
    patch: Annotated[str, typer.Option(help="Bits of the patch embedding, as 8/8, or float.")] = "float",
    samples: Annotated[int, typer.Option(help="Calibration images that risks are measured on.")] = 1024,
    recover: Annotated[int, typer.Option(help="Training steps at the end; 0 is none.")] = 0,
    recover_swaps: Annotated[int, typer.Option(help="Training steps after every swap of bits.")] = 0,
    batch: Annotated[int, typer.Option(help="Images of a training step.")] = 256,
    lr: Annotated[float, typer.Option(help="Peak learning rate of recovery.")] = 1e-4,
    bf16: Annotated[bool, typer.Option("--bf16", help="Train in bfloat16, compiled.")] = False,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda; the GPU if there is one.")] = None,
) -> None:
    """Choose bits and thresholds together, and write a plan and a quantized model that follows it.

    Run it again to go on after a stop; Ctrl-C leaves the best plan so far.
    """
    from maqee.apq import Budget
    from maqee.compress import CompressOptions, RecoverySettings, compress_folder
    from maqee.compress.solvers import search_options
    from maqee.evaluate.tables import plan_table
    from maqee.quant import QuantSettings
    from maqee.quant.settings import parse_bits

    recovery = RecoverySettings(batch_size=batch, lr=lr, precision="bf16" if bf16 else "fp32", compile=bf16)
    done = compress_folder(
        model,
        data,
        data_root,
        out,
        Budget(average_bits=avg_bits, max_bops=max_bops, min_metric=min_accuracy),
        search_options(solver, lambda_outer, recover_swaps),
        CompressOptions(
            method=method,
            task=task,
            quantization=QuantSettings(patch=parse_bits(patch, "--patch")),
            samples=samples,
            scored=samples // 2,
            recovery_steps=recover,
            recovery=recovery,
            seed=seed,
        ),
        device,
    )
    typer.echo(plan_table(done.plan))
    if not done.finished:
        typer.echo("Stopped early: this is the best so far. Run the same command again to go on.")
    typer.echo(f"Written to {out}. Next: maqee eval {out}")
