"""`maqee quantize`: accuracy of quantized models, method by method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import (
    OUTPUT,
    QUANTIZATION,
    RUNNING,
    AnyModel,
    DataRoot,
    Device,
    Exif,
    Json,
    KnownData,
    Mean,
    Methods,
    Resample,
    Resize,
    Std,
    parse_integers,
    parse_pixels,
    split_words,
)
from maqee.cli.output import deliver


def quantize(
    model: AnyModel,
    method: Methods = "repq",
    bits: Annotated[
        str,
        typer.Option(
            help="Bits of weights and activations, with commas between several: W4A4,W6A6.",
            rich_help_panel=QUANTIZATION,
        ),
    ] = "W4A4",
    scope: Annotated[
        str,
        typer.Option(
            help="default (patch embedding and classifier float), authors (both quantized), or default,authors.",
            rich_help_panel=QUANTIZATION,
        ),
    ] = "default",
    images: Annotated[
        int, typer.Option(help="Calibration images that grids are fitted on.", min=1, rich_help_panel=QUANTIZATION)
    ] = 32,
    data: KnownData = None,
    data_root: DataRoot = None,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    resample: Resample = None,
    exif: Exif = None,
    batch: Annotated[int, typer.Option(help="Test images at a time.", min=1, rich_help_panel=RUNNING)] = 128,
    seed: Annotated[
        str,
        typer.Option(help="Random seeds of the draw of calibration images, e.g. 0,1,2.", rich_help_panel=RUNNING),
    ] = "0",
    device: Device = None,
    out: Annotated[
        Path | None,
        typer.Option(help="JSON file, written after every row; run again to go on.", rich_help_panel=OUTPUT),
    ] = None,
    json: Json = False,
) -> None:
    """Quantize a model in every way asked and evaluate each on the test images (simulated)."""
    from maqee.evaluation.quantization import compare_methods
    from maqee.report.method_table import method_table

    found = compare_methods(
        model,
        data,
        data_root=data_root,
        method=split_words(method),
        bits=split_words(bits),
        scope=split_words(scope),
        seeds=parse_integers(seed, "--seed"),
        images=images,
        **parse_pixels(resize, mean, std, resample, exif),
        device=device,
        batch_size=batch,
        out=out,
    )
    deliver(found, method_table, json)
    if out is not None and not json:
        typer.echo(f"Written to {out}.")
