"""`maqee bench`: measurements on the machine at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from maqee.cli.options import DataRoot, Device, Exif, Figures, Mean, Resample, Resize, Std, parse_numbers

app = typer.Typer(
    help="Measure this machine: gradients under torch.compile, speed of early exit, cost of quantization and recovery.",
    no_args_is_help=True,
)

Model = Annotated[str, typer.Option(help="Preset, folder, weights file or Hub name.")]
Exits = Annotated[str, typer.Option(help="lgvit, vit-ee, or one head kind for all exits.")]


@app.command()
def gradients(
    model: Model = "vit-small",
    exits: Exits = "lgvit",
    batch: Annotated[int, typer.Option(help="Images.", min=2)] = 8,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "bf16",
    device: Device = None,
    out: Figures = None,
) -> None:
    """Compare compiled with eager gradients; exit code 1 if they disagree. Run it before a long training."""
    from maqee.bench.gradients import compare_gradients

    result = compare_gradients(model, exits, batch, _precision(precision), device)
    typer.echo(
        f"{model} with {exits} exits, {precision}, {result['device']}: gradient norm {result['eager_norm']:.4f} eager, "
        f"{result['compiled_norm']:.4f} compiled, relative difference {result['relative_difference']:.2e}: "
        f"{'they agree' if result['agree'] else 'WRONG'}"
    )
    _write(out, result)
    if not result["agree"]:
        raise typer.Exit(1)


@app.command()
def exits(
    model: Model = "vit-small",
    exits: Exits = "lgvit",
    batch: Annotated[int, typer.Option(help="Images.", min=1)] = 256,
    mean_exit: Annotated[list[float] | None, typer.Option(help="Mean exit depth; may be repeated.")] = None,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "bf16",
    compile: Annotated[bool, typer.Option(help="Use torch.compile on both sides.")] = True,
    graphs: Annotated[bool, typer.Option(help="Replay CUDA graphs between exits, on a GPU.")] = True,
    repeats: Annotated[int, typer.Option(help="Timed turns.", min=1)] = 20,
    device: Device = None,
    out: Figures = None,
) -> None:
    """Time executed early exit against full depth, side by side."""
    from maqee.bench.throughput import compare_throughput

    wanted = mean_exit or [6.0, 7.26, 9.0]
    result = compare_throughput(model, exits, batch, wanted, _precision(precision), device, compile, graphs, repeats)
    typer.echo(f"{model}, {exits} exits, batch {batch}, {precision}, {result['device']}, executed")
    typer.echo(f"{'mean exit':>10}{'full img/s':>12}{'exit img/s':>12}{'speed-up':>10}{'ideal':>8}{'reached':>9}")
    for row in result["rows"]:
        typer.echo(
            f"{row['mean_exit']:>10.2f}{row['full_depth_images_per_second']:>12.0f}{row['images_per_second']:>12.0f}"
            f"{row['speedup']:>10.2f}{row['ideal_speedup']:>8.2f}{row['share_of_ideal']:>9.1%}"
        )
    _write(out, result)


@app.command()
def quantize(
    model: Model = "vit-base",
    methods: Annotated[str | None, typer.Option(help="Methods with commas between them; all when left out.")] = None,
    bits: Annotated[str, typer.Option(help="Weight and activation bits, e.g. W4A4.")] = "W4A4",
    images: Annotated[int, typer.Option(help="Calibration images.", min=1)] = 32,
    threads: Annotated[int | None, typer.Option(help="Of the processor; torch's own choice when left out.")] = None,
    repeats: Annotated[int, typer.Option(help="Full-precision passes before and after fitting.", min=1)] = 3,
    out: Figures = None,
) -> None:
    """Time and peak memory of fitting each method, beside one full-precision pass over the same images."""
    from maqee.bench.fitting import compare_fitting

    names = [name.strip() for name in methods.split(",")] if methods is not None else None
    result = compare_fitting(model, names, bits, images, threads, repeats)
    base, gib = result["float_pass"], 2**30
    typer.echo(f"{result['model']}, {bits}, {images} images, {result['threads']} threads of the processor")
    typer.echo(f"{'method':<12}{'fit s':>9}{'pass s':>9}{'passes':>9}{'peak GiB':>10}{'ratio':>8}{'extra / model':>15}")
    typer.echo(f"{'float':<12}{'':>9}{base['pass_seconds']:>9.2f}{1:>9.2f}{base['peak_bytes'] / gib:>10.2f}{1:>8.2f}")
    for row in result["rows"]:
        typer.echo(
            f"{row['method']:<12}{row['fit_seconds']:>9.2f}{row['pass_seconds']:>9.2f}{row['passes']:>9.2f}"
            f"{row['peak_bytes'] / gib:>10.2f}{row['peak_ratio']:>8.2f}{row['extra_per_model_bytes']:>15.2f}"
        )
    _write(out, result)


@app.command()
def recovery(
    model: Model = "vit-small",
    batch: Annotated[int, typer.Option(help="Images.", min=1)] = 256,
    repeats: Annotated[int, typer.Option(help="Timed steps.", min=1)] = 10,
    compile: Annotated[bool, typer.Option(help="Use torch.compile on both sides.")] = True,
    device: Device = None,
    out: Figures = None,
) -> None:
    """Time a training step of a quantized model against the same step in float, side by side."""
    from maqee.bench.recovery_step import measure_recovery

    result = measure_recovery(model, batch, repeats, device, compile)
    seconds = result["seconds"]
    typer.echo(
        f"{model}, batch {batch}: a step takes {1000 * seconds['float']:.1f} ms in float and "
        f"{1000 * seconds['quantized']:.1f} ms quantized, {result['multiple']:.2f} times as long; "
        f"gradient norm {result['gradient_norm']}"
    )
    _write(out, result)


@app.command()
def search(
    model: Model = "vit-tiny",
    exits: Exits = "lgvit",
    samples: Annotated[int, typer.Option(help="Calibration images.", min=2)] = 128,
    scored: Annotated[
        int | None, typer.Option(help="Images that single blocks are run on; half of them when left out.", min=1)
    ] = None,
    method: Annotated[str, typer.Option(help="Quantization method (see `maqee ls`).")] = "erq",
    repeats: Annotated[int, typer.Option(help="Timed turns.", min=1)] = 3,
    threads: Annotated[
        int | None, typer.Option(help="Of the processor; torch's own choice when left out.", min=1)
    ] = None,
    device: Device = None,
    out: Figures = None,
) -> None:
    """Cost of one step of the search for bits, in calibration passes and seconds, beside running the model anew."""
    from maqee.bench.search_step import search_cost

    result = search_cost(model, exits, samples, scored, method, repeats, threads, device)
    typer.echo(
        f"{model} by {method}, {samples} images, {result['scored']} for single blocks, {result['device']}, "
        f"{result['threads']} threads"
    )
    typer.echo(f"{'':<28}{'passes':>8}{'seconds':>10}{'of a pass':>11}")
    typer.echo(f"{'calibration pass':<28}{1:>8}{result['pass_seconds']:>10.2f}{1:>11.2f}")
    for name, key in (("one step of the search", "step"), ("running the model anew", "plain")):
        row = result[key]
        typer.echo(f"{name:<28}{row['passes']:>8.3g}{row['seconds']:>10.2f}{row['of_a_pass']:>11.2f}")
    arrays = result["arrays"]
    typer.echo(
        f"On arrays of {arrays['samples']} samples and {arrays['exits']} exits: a sweep of thresholds "
        f"{1000 * arrays['grid_sweep_seconds']:.2f} ms, the exact optimum {arrays['exact_seconds']:.2f} s"
    )
    _write(out, result)


@app.command()
def integers(
    model: Annotated[str, typer.Option(help="Preset, folder, weights file, Hub name, or a run of `maqee train`.")],
    data: Annotated[str, typer.Option(help="Data set (see `maqee ls`).")],
    data_root: DataRoot = None,
    images: Annotated[int, typer.Option(help="Test images.", min=1)] = 1000,
    method: Annotated[str, typer.Option(help="Quantization method (see `maqee ls`).")] = "repq",
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    resample: Resample = None,
    exif: Exif = None,
    out: Figures = None,
) -> None:
    """Run a 4-bit model simulated and executed on int32 sums, and compare the answers."""
    from maqee.bench.integers import compare_integers

    result = compare_integers(
        model,
        data,
        data_root,
        images,
        method,
        resize=resize,
        mean=parse_numbers(mean, "--mean"),
        std=parse_numbers(std, "--std"),
        resample=resample,
        exif=exif,
        out=out,
    )
    typer.echo(
        f"{result['model']}, {method} {result['bits']}, {images} images: simulated and executed agree on "
        f"{result['agreement']:.2%}; worst layer {result['worst_layer']:.1e}"
    )


@app.command()
def neighbour(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value for the demo's recipe, e.g. stages.0.epochs=2.")
    ] = None,
    neighbours: Annotated[
        int | None, typer.Option(help="Busy programs; all cores but one when left out.", min=1)
    ] = None,
    out: Figures = None,
) -> None:
    """Time the demo on the machine as it is, and once more beside busy programs."""
    from maqee.bench.neighbour import measure_neighbour

    result = measure_neighbour(overrides or [], neighbours)
    alone, beside = result["alone"], result["beside"]
    typer.echo(
        f"The demo takes {alone['seconds']:.1f} s alone (load {alone['load_before'][0]:.1f} before it) and "
        f"{beside['seconds']:.1f} s beside {result['neighbours']} busy on {result['cores']} cores: "
        f"{result['ratio']:.2f} times as long; at most {result['aim']:g} is the aim"
    )
    _write(out, result)


def _precision(text: str) -> str:
    from maqee.errors import MaqeeError

    if text not in ("fp32", "bf16"):
        raise MaqeeError(f"--precision {text!r} is not one of fp32, bf16.")
    return text


def _write(out: Path | None, result: dict[str, Any]) -> None:
    from maqee.io import write_json

    if out is not None:
        write_json(out, result)
        typer.echo(f"Written to {out}.")
