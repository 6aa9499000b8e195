"""`maqee baselines`: uniform bits and shared thresholds, to compare a plan with."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import (
    QUANTIZATION,
    Bits,
    Controlled,
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
    split_words,
)
from maqee.cli.output import deliver


def baselines(
    run: TrainedRun,
    method: Methods = "repq,erq,mptq",
    bits: Bits = "W4A4",
    controlled: Controlled = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Calibration images for controlled performance, and for mptq, which chooses weight bits.",
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
    """Evaluate full precision and quantized baselines at every exit and at shared thresholds (simulated).

    Both protocols of the paper are shown: 0.8 for all exits (standard configuration), and moved to --controlled, which
    is the best accuracy of a quantized one at full depth when left out.
    """
    from maqee.compression.baselines import baselines as compare_baselines
    from maqee.compression.compress_config import read_compress_config
    from maqee.evaluation.quantization_cases import parse_widths
    from maqee.report.tables import baseline_table

    weight_bits, act_bits = parse_widths(bits)
    wanted = {
        "options.task": task,
        "options.fit_images": fit_images,
        "options.samples": samples,
        "options.seed": seed,
        "options.quantization.weight_bits": weight_bits,
        "options.quantization.act_bits": act_bits,
    }
    options = read_compress_config(values=wanted).options
    found = compare_baselines(
        run,
        split_words(method),
        data=data,
        data_root=data_root,
        options=options,
        controlled=controlled,
        device=device,
    )
    deliver(found, baseline_table, json, out)
