"""`maqee envelope`: the best that uniform bits with one threshold can do, at every cost."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import (
    QUANTIZATION,
    DataRoot,
    Device,
    Figures,
    FitImages,
    Json,
    KnownData,
    Methods,
    Seed,
    Task,
    TrainedRun,
    parse_spans,
    split_words,
)
from maqee.cli.output import deliver


def envelope(
    run: TrainedRun,
    method: Methods = "erq,repq",
    weights: Annotated[
        str, typer.Option(help="Weight bits of blocks and exit heads, e.g. 3-6 or 4,8.", rich_help_panel=QUANTIZATION)
    ] = "3-6",
    activations: Annotated[
        str,
        typer.Option(help="Activation bits, likewise; every pair is measured.", rich_help_panel=QUANTIZATION),
    ] = "3-8",
    samples: Annotated[
        int | None,
        typer.Option(
            help="Calibration images that choose a threshold for each pair.",
            show_default="1024",
            min=1,
            rich_help_panel=QUANTIZATION,
        ),
    ] = None,
    fit_images: FitImages = None,
    data: KnownData = None,
    data_root: DataRoot = None,
    task: Task = None,
    seed: Seed = None,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Evaluate every uniform pair of bits with one threshold for all exits: the best at every cost (simulated).

    Thresholds are swept on the test images, in the baselines' favour; what calibration images choose is shown too.
    """
    from maqee.compression.compress_config import read_compress_config
    from maqee.compression.envelope import envelope as find_envelope
    from maqee.report.envelope_table import envelope_table

    wanted = {
        "options.task": task,
        "options.fit_images": fit_images,
        "options.samples": samples,
        "options.seed": seed,
    }
    found = find_envelope(
        run,
        split_words(method),
        weights=parse_spans(weights, "--weights"),
        activations=parse_spans(activations, "--activations"),
        data=data,
        data_root=data_root,
        options=read_compress_config(values=wanted).options,
        device=device,
    )
    deliver(found, envelope_table, json, out)
