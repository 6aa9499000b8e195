"""`maqee bench`: measurements on the machine at hand."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli import bench_engines, bench_kernels, bench_plans
from maqee.cli.options import (
    DATA,
    QUANTIZATION,
    RUNNING,
    AnyModel,
    Bits,
    Compile,
    DataRoot,
    Device,
    Exif,
    Exits,
    Figures,
    FinishedRun,
    FitImages,
    Json,
    KnownData,
    Mean,
    MeanExits,
    Method,
    Precision,
    Repeats,
    Resample,
    Resize,
    Seed,
    Stage,
    Std,
    Threads,
    TrainedRun,
    parse_integers,
    parse_mean_exits,
    parse_pixels,
    split_words,
)
from maqee.cli.output import deliver

app = typer.Typer(
    help="Measure this machine: gradients under torch.compile, speed of early exit, cost of quantization and recovery; "
    "and how well confidences tell hard images from easy ones.",
    no_args_is_help=True,
)
app.command()(bench_engines.stream)
app.command()(bench_engines.engines)
app.command()(bench_engines.decisions)
app.command()(bench_plans.plans)
app.command()(bench_kernels.kernels)


@app.command()
def gradients(
    model: AnyModel = "vit-small",
    exits: Exits = "lgvit",
    batch: Annotated[int, typer.Option(help="Number of images.", min=2, rich_help_panel=RUNNING)] = 8,
    precision: Precision = "bf16",
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Compare compiled with eager gradients; exit code 1 if they disagree. Run it before a long training."""
    from maqee.bench.gradients import bench_gradients
    from maqee.report.bench_tables import gradients_line

    found = bench_gradients(model, exits=exits, batch_size=batch, precision=precision, device=device)
    deliver(found, gradients_line, json, out)
    if not found.agree:
        raise typer.Exit(1)


@app.command()
def exits(
    model: AnyModel = "vit-small",
    exits: Exits = "lgvit",
    batch: Annotated[int, typer.Option(help="Number of images.", min=1, rich_help_panel=RUNNING)] = 256,
    mean_exit: MeanExits = None,
    precision: Precision = "bf16",
    compile: Compile = True,
    graphs: Annotated[
        bool, typer.Option(help="Replay CUDA graphs between exits, on a GPU.", rich_help_panel=RUNNING)
    ] = True,
    repeats: Repeats = 20,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time executed early exit against full depth, side by side."""
    from maqee.bench.throughput import MEAN_EXITS, bench_exits
    from maqee.report.bench_tables import exits_table

    found = bench_exits(
        model,
        exits=exits,
        batch_size=batch,
        mean_exits=parse_mean_exits(mean_exit) or MEAN_EXITS,
        precision=precision,
        device=device,
        compile=compile,
        graphs=graphs,
        repeats=repeats,
    )
    deliver(found, exits_table, json, out)


@app.command()
def quantize(
    model: AnyModel = "vit-base",
    method: Annotated[
        str | None,
        typer.Option(
            help="Quantization methods with commas between them; all when left out.", rich_help_panel=QUANTIZATION
        ),
    ] = None,
    bits: Bits = "W4A4",
    images: Annotated[int, typer.Option(help="Calibration images.", min=1, rich_help_panel=QUANTIZATION)] = 32,
    threads: Threads = None,
    repeats: Annotated[
        int, typer.Option(help="Full-precision passes before and after fitting.", min=1, rich_help_panel=RUNNING)
    ] = 3,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time and memory of fitting each method at one pair of widths and at all, beside one full-precision pass."""
    from maqee.bench.fitting import bench_quantize
    from maqee.report.bench_tables import fitting_table

    names = None if method is None else split_words(method)
    found = bench_quantize(model, method=names, bits=bits, images=images, threads=threads, repeats=repeats)
    deliver(found, fitting_table, json, out)


@app.command()
def recovery(
    model: AnyModel = "vit-small",
    batch: Annotated[int, typer.Option(help="Images of a training step.", min=1, rich_help_panel=RUNNING)] = 256,
    repeats: Repeats = 10,
    compile: Compile = True,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time a training step of a quantized model against the same step in float, side by side."""
    from maqee.bench.recovery_step import bench_recovery
    from maqee.report.bench_tables import recovery_line

    found = bench_recovery(model, batch_size=batch, repeats=repeats, device=device, compile=compile)
    deliver(found, recovery_line, json, out)


@app.command()
def search(
    model: AnyModel = "vit-tiny",
    exits: Exits = "lgvit",
    samples: Annotated[int, typer.Option(help="Calibration images.", min=2, rich_help_panel=RUNNING)] = 128,
    scored: Annotated[
        int | None,
        typer.Option(
            help="Images that single blocks are run on; half of the samples when left out.",
            min=1,
            rich_help_panel=RUNNING,
        ),
    ] = None,
    method: Method = "erq",
    repeats: Repeats = 3,
    threads: Threads = None,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Cost of the search for bits and of one iteration, in calibration passes and seconds."""
    from maqee.bench.search_step import bench_search
    from maqee.report.bench_tables import search_step_table

    found = bench_search(
        model,
        exits=exits,
        samples=samples,
        scored=scored,
        method=method,
        repeats=repeats,
        threads=threads,
        device=device,
    )
    deliver(found, search_step_table, json, out)


@app.command()
def signals(
    run: TrainedRun,
    data: KnownData = None,
    data_root: DataRoot = None,
    method: Method = "erq",
    images: Annotated[
        str,
        typer.Option(
            help="Numbers of calibration images that signals look at, with commas between them.",
            rich_help_panel=RUNNING,
        ),
    ] = "32,64,128",
    held_out: Annotated[
        int, typer.Option(help="Other calibration images, for the real effects.", min=16, rich_help_panel=RUNNING)
    ] = 2048,
    fit_images: FitImages = None,
    seed: Seed = None,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Compare signals for choosing bits: how well each ranks all single steps of widths by what they really do."""
    from maqee.bench.signals import bench_signals
    from maqee.report.signal_table import signal_table

    found = bench_signals(
        run,
        data=data,
        data_root=data_root,
        method=method,
        images=parse_integers(images, "--images"),
        held_out=held_out,
        fit_images=32 if fit_images is None else fit_images,
        seed=seed or 0,
        device=device,
    )
    deliver(found, signal_table, json, out)


@app.command()
def integers(
    model: AnyModel,
    data: Annotated[str, typer.Option(help="Data set (see `maqee ls`).", rich_help_panel=DATA)],
    data_root: DataRoot = None,
    images: Annotated[int, typer.Option(help="Number of test images.", min=1, rich_help_panel=DATA)] = 1000,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    resample: Resample = None,
    exif: Exif = None,
    method: Method = "repq",
    out: Figures = None,
    json: Json = False,
) -> None:
    """Run a 4-bit model simulated and executed on int32 sums, and compare the answers."""
    from maqee.bench.integers import bench_integers
    from maqee.report.bench_tables import integers_line

    found = bench_integers(
        model,
        data,
        data_root=data_root,
        images=images,
        method=method,
        **parse_pixels(resize, mean, std, resample, exif),
    )
    deliver(found, integers_line, json, out)


@app.command()
def neighbour(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Other values for the demo's recipe, e.g. stages.0.epochs=2."),
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(help="Number of busy programs; all cores but one when left out.", min=1, rich_help_panel=RUNNING),
    ] = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time the demo on the machine as it is, and once more beside busy programs."""
    from maqee.bench.neighbour import bench_neighbour
    from maqee.report.bench_tables import neighbour_line

    deliver(bench_neighbour(overrides or (), neighbours=neighbours), neighbour_line, json, out)


@app.command()
def confidence(
    run: FinishedRun,
    stage: Stage = None,
    data_root: DataRoot = None,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Compare the confidences of a task: how well each ranks the calibration images by their score, at every exit."""
    from maqee.evaluation.confidence_ranks import rank_confidences
    from maqee.report.confidence_table import confidence_table

    deliver(rank_confidences(run, data_root=data_root, stage=stage, device=device), confidence_table, json, out)
