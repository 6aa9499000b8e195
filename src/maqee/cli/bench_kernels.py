"""`maqee bench kernels`: the engine triton, kernel by kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import (
    RUNNING,
    AnyModel,
    Bits,
    Classifier,
    CommonSteps,
    Device,
    Exits,
    Figures,
    Json,
    Method,
    Patch,
    Repeats,
    Seed,
    parse_integers,
)
from maqee.cli.output import deliver


def kernels(
    model: AnyModel = "vit-base",
    exits: Exits = "none",
    method: Method = "erq",
    bits: Bits = "W4A4",
    patch: Patch = None,
    classifier: Classifier = None,
    common_steps: CommonSteps = False,
    half_tokens: Annotated[
        bool,
        typer.Option("--half-tokens", help="Let tokens travel between kernels in float16.", rich_help_panel=RUNNING),
    ] = False,
    batch: Annotated[
        str, typer.Option(help="Numbers of images, with commas between them.", rich_help_panel=RUNNING)
    ] = "1,256",
    seed: Seed = None,
    repeats: Repeats = 20,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time the GPU kernels of a quantized model one by one and together, beside torch.compile in bfloat16."""
    from maqee.bench.kernel_speed import bench_kernels
    from maqee.report.kernel_table import kernel_table

    found = bench_kernels(
        model,
        exits=exits,
        method=method,
        bits=bits,
        patch=patch,
        classifier=classifier,
        common_steps=common_steps,
        half_tokens=half_tokens,
        batch=parse_integers(batch, "--batch"),
        seed=seed or 0,
        repeats=repeats,
        device=device,
    )
    deliver(found, kernel_table, json, out)
