"""`maqee compress`: bits and thresholds together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from maqee.cli.options import (
    ASK,
    GUARANTEE,
    OUTPUT,
    QUANTIZATION,
    SEARCH,
    TRAINING,
    Classifier,
    DataRoot,
    Device,
    Exif,
    FitImages,
    Json,
    KnownData,
    Layers,
    MaxBops,
    MaxDrop,
    MaxMs,
    Mean,
    MinAccuracy,
    Patch,
    Resample,
    Resize,
    Seed,
    Std,
    TargetOn,
    Task,
    TrainedRun,
    parse_pixels,
    parse_range,
)
from maqee.cli.search_flags import (
    ActRange,
    AverageBits,
    BitsChosen,
    BitSolver,
    CostPrice,
    Grain,
    Like,
    MaxMoves,
    Objective,
    PlanFrontier,
    SearchBits,
    WeightRange,
)

EVERYTHING = "Every other option"


def compress(
    run: TrainedRun,
    *,
    max_drop: MaxDrop = None,
    min_accuracy: MinAccuracy = None,
    max_bops: MaxBops = None,
    max_ms: MaxMs = None,
    like: Like = None,
    target_on: TargetOn = None,
    frontier: PlanFrontier = False,
    cost: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Search for the least time that `maqee profile` measured, not for the fewest BOPs.",
            rich_help_panel=ASK,
        ),
    ] = None,
    bits: BitsChosen = None,
    grain: Grain = None,
    search_bits: SearchBits = None,
    weight_range: WeightRange = None,
    act_range: ActRange = None,
    objective: Objective = None,
    max_moves: MaxMoves = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Calibration images that risks and thresholds are measured on, or as many as there are.",
            show_default="1024",
            min=1,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    avg_bits: AverageBits = None,
    solver: BitSolver = None,
    lambda_outer: CostPrice = None,
    method: Annotated[
        str | None,
        typer.Option(help="Quantization method (see `maqee ls`).", show_default="erq", rich_help_panel=QUANTIZATION),
    ] = None,
    patch: Patch = None,
    classifier: Classifier = None,
    layer: Layers = None,
    fit_images: FitImages = None,
    recover: Annotated[
        int | None,
        typer.Option(help="Training steps at the end.", show_default="0: none", min=0, rich_help_panel=TRAINING),
    ] = None,
    recover_swaps: Annotated[
        int | None,
        typer.Option(
            help="With --bits weights: training steps after every swap of bits.",
            show_default="0: none",
            min=0,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Images of a training step.",
            show_default="256, fewer if they are large",
            min=1,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Peak learning rate.", show_default="0.0005 for 256 images, less for fewer", rich_help_panel=TRAINING
        ),
    ] = None,
    exit_weights: Annotated[
        str | None,
        typer.Option(
            help="Weights of exits in the loss: mass (of the images that leave there) or depth.",
            show_default="mass",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    bf16: Annotated[
        bool, typer.Option("--bf16", help="Train in bfloat16, compiled.", rich_help_panel=TRAINING)
    ] = False,
    risk: Annotated[
        str | None,
        typer.Option(
            help="Promise a small gap to full depth: crc, ucb or ltt, with --epsilon.", rich_help_panel=GUARANTEE
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Largest gap to full depth, e.g. 0.02.", rich_help_panel=GUARANTEE)
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Probability with which a promise of ucb or ltt may fail.",
            show_default="0.1",
            rich_help_panel=GUARANTEE,
        ),
    ] = None,
    risk_loss: Annotated[
        str | None,
        typer.Option(
            help="zero-one or brier, for classification; other tasks use 1 - score.", rich_help_panel=GUARANTEE
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml",
            help="Options in the sections budget, search and options; or request.json of a run, to repeat it.",
            rich_help_panel=EVERYTHING,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="One such option, e.g. search.alpha=0.5 or just alpha=0.5; repeatable, stronger than the file.",
            rich_help_panel=EVERYTHING,
        ),
    ] = None,
    data: KnownData = None,
    data_root: DataRoot = None,
    task: Task = None,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    resample: Resample = None,
    exif: Exif = None,
    seed: Seed = None,
    device: Device = None,
    out: Annotated[Path, typer.Option(help="New folder for plan, trace and model.", rich_help_panel=OUTPUT)],
    json: Json = False,
) -> None:
    """Choose bits and thresholds together, and write a plan and a quantized model that follows it.

    Asked for nothing, it looks for the least cost at most one point below what the quantized model can reach.

    Run it again to go on after a stop; Ctrl-C leaves the best plan so far.
    """
    from maqee.apq.road_times import RoadTimes
    from maqee.compression import compress as compress_run
    from maqee.compression.compress_config import read_compress_config
    from maqee.quant.settings import parse_override
    from maqee.report.model_card import write_model_card
    from maqee.report.write_report import write_report

    if cost is not None:
        weights, activations = RoadTimes.load(cost).ranges
        weight_range = weight_range or "{}-{}".format(*weights)
        act_range = act_range or "{}-{}".format(*activations)
    fewest, most = parse_range(weight_range, "--weight-range")
    act_fewest, act_most = parse_range(act_range, "--act-range")
    flags: dict[str, Any] = {
        "budget.average_bits": avg_bits,
        "budget.max_bops": max_bops,
        "budget.max_ms": max_ms,
        "budget.min_metric": min_accuracy,
        "budget.max_drop": max_drop,
        "budget.like": like,
        "budget.target_on": target_on,
        "search.bits": bits,
        "search.grain": grain,
        "search.search_bits": search_bits,
        "search.bit_min": fewest,
        "search.bit_max": most,
        "search.act_min": act_fewest,
        "search.act_max": act_most,
        "search.objective": objective,
        "search.frontier": True if frontier else None,
        "search.max_swaps": max_moves,
        "search.solver": solver,
        "search.lambda_outer": lambda_outer,
        "search.recovery_steps": recover_swaps,
        "options.method": method,
        "options.task": task,
        "options.quantization.patch": patch,
        "options.quantization.classifier": classifier,
        "options.quantization.overrides": None if not layer else [_as_pair(*parse_override(text)) for text in layer],
        "options.fit_images": fit_images,
        "options.samples": samples,
        "options.recovery_steps": recover,
        "options.recovery.batch_size": batch,
        "options.recovery.lr": lr,
        "options.recovery.weights": exit_weights,
        "options.recovery.precision": "bf16" if bf16 else None,
        "options.recovery.compile": True if bf16 else None,
        "options.risk.method": risk,
        "options.risk.epsilon": epsilon,
        "options.risk.delta": delta,
        "options.risk.loss": risk_loss,
        "options.seed": seed,
    }
    wanted = read_compress_config(config, assignments or (), flags)
    _check_effect(wanted, avg_bits, solver)
    done = compress_run(
        run,
        data=data,
        data_root=data_root,
        preprocessing=parse_pixels(resize, mean, std, resample, exif),
        cost=cost,
        budget=wanted.budget,
        search_options=wanted.search,
        options=wanted.options,
        out=out,
        device=device,
    )
    _print(done, json)
    page = write_report(out).page  # after what took long has been shown
    write_model_card(out)
    if not json:
        typer.echo(f"Written to {out}, with a report: {page}. Next: maqee eval {out}")


def _check_effect(wanted: Any, avg_bits: float | None, solver: str | None) -> None:
    """Complain about options that would be without effect."""
    from maqee.errors import MaqeeError

    if wanted.search.bits == "weights":
        return
    if avg_bits is not None:
        raise MaqeeError("--avg-bits: only the choice of weight bits alone keeps an average: add --bits weights.")
    target = wanted.budget.or_usual(wanted.search)
    if solver == "exact" and target.asks_for_metric and target.target_on == "expected":
        raise MaqeeError(
            "--solver: exact looks at the calibration images alone: ask for the accuracy there (--target-on "
            "calibration), or for a cost."
        )


def _as_pair(pattern: str, bits: object) -> list[str]:
    return [pattern, str(bits)]


def _print(done: Any, json: bool) -> None:
    from maqee.io import to_json
    from maqee.report.plan_table import plan_table

    if json:
        import json as parser

        typer.echo(to_json({**done.to_json(), "plan": parser.loads(done.plan.to_json())}), nl=False)
        return
    typer.echo(plan_table(done.plan))
    for note in done.notes:
        typer.echo(note)
    if not done.finished:
        typer.echo("Stopped early: this is the best so far. Run the same command again to go on.")
