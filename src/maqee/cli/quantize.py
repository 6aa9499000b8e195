"""`maqee quantize`: accuracy of quantized models, method by method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from maqee.cli.options import DataRoot, Device, Exif, Json, Mean, Resample, Resize, Std, parse_numbers


def quantize(
    model: Annotated[str, typer.Option(help="Preset, folder (with or without exits), weights file or Hub name.")],
    data: Annotated[str, typer.Option(help="Name of a data set, see `maqee ls`.")],
    data_root: DataRoot = None,
    method: Annotated[str, typer.Option(help="Methods with commas between them, see `maqee ls`.")] = "repq",
    bits: Annotated[str, typer.Option(help="Weight and activation bits, e.g. W4A4,W6A6.")] = "W4A4",
    scope: Annotated[
        str, typer.Option(help="default (patch embedding and classifier float), authors (quantized), or both.")
    ] = "default",
    seeds: Annotated[str, typer.Option(help="Draws of calibration images, e.g. 0,1,2.")] = "0",
    images: Annotated[int, typer.Option(help="Calibration images of a draw.", min=1)] = 32,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    resample: Resample = None,
    exif: Exif = None,
    batch: Annotated[int, typer.Option(help="Test images at a time.", min=1)] = 128,
    device: Device = None,
    out: Annotated[Path | None, typer.Option(help="JSON file, written after every row; run again to go on.")] = None,
    json: Json = False,
) -> None:
    """Quantize a model in every way asked and evaluate each on the test images (simulated)."""
    from maqee.evaluation.quantization import compare_quantization
    from maqee.io import to_json

    result = compare_quantization(
        model,
        data,
        data_root=data_root,
        method=_split(method),
        bits=_split(bits),
        scope=_split(scope),
        seeds=_numbers(seeds),
        images=images,
        resize=resize,
        mean=parse_numbers(mean, "--mean"),
        std=parse_numbers(std, "--std"),
        resample=resample,
        exif=exif,
        device=device,
        batch_size=batch,
        out=out,
    )
    if json:
        typer.echo(to_json(result), nl=False)
        return
    _print(result)
    if out is not None:
        typer.echo(f"Written to {out}.")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str) -> list[int]:
    from maqee.errors import MaqeeError

    try:
        return [int(part) for part in _split(text)]
    except ValueError as error:
        raise MaqeeError(f"--seeds {text!r} must be whole numbers with commas between them.") from error


def _print(result: dict[str, Any]) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    title = f"{result['model']} on {result['data']}, {result['test_images']} images, accuracy simulated"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("method", "bits", "scope"):
        table.add_column(name)
    for name in ("images", "seeds", "fit s"):
        table.add_column(name, justify="right")
    several = len(result["exit_blocks"]) > 1
    for block in result["exit_blocks"]:
        table.add_column(f"exit {block} %" if several else "accuracy %", justify="right", no_wrap=True)
    for row in result["summary"]:
        spread = row["spread"] or [None] * len(row["mean"])
        figures = [
            f"{100 * mean:.2f}" + ("" if width is None else f" ± {100 * width:.2f}")
            for mean, width in zip(row["mean"], spread, strict=True)
        ]
        counts = [str(row["images"]), str(row["seeds"]), f"{row['fit_seconds']:.1f}"]
        if row["method"] == "float":
            counts = ["", "", ""]
        table.add_row(row["method"], row["bits"], row["scope"], *counts, *figures)
    Console(width=None if sys.stdout.isatty() else 160).print(table, highlight=False)
