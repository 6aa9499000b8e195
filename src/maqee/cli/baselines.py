"""`maqee baselines`: uniform bits and shared thresholds, to compare a plan with."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import DataRoot, Device, Figures, TrainedData, TrainedModel, TrainedTask


def baselines(
    model: TrainedModel,
    data: TrainedData,
    data_root: DataRoot = None,
    task: TrainedTask = None,
    methods: Annotated[str, typer.Option(help="Quantization methods, separated by commas.")] = "repq,erq,mptq",
    bits: Annotated[int, typer.Option(help="Weight bits of every block; mptq spreads as many by its own choice.")] = 4,
    samples: Annotated[int, typer.Option(help="Calibration images for mptq's choice of bits.")] = 1024,
    fit_images: Annotated[int, typer.Option(help="Calibration images that grids are fitted on.")] = 32,
    seed: Annotated[int, typer.Option(help="Of the draw of calibration images.")] = 0,
    out: Figures = None,
    device: Device = None,
) -> None:
    """Evaluate full precision and quantized baselines at every exit and at shared thresholds (simulated)."""
    from maqee.compression import CompressOptions
    from maqee.compression.baselines import baselines as compare_baselines
    from maqee.io import write_json
    from maqee.quant import QuantSettings
    from maqee.report.tables import baseline_table

    options = CompressOptions(
        task=task,
        fit_images=fit_images,
        quantization=QuantSettings(weight_bits=bits),
        samples=samples,
        scored=max(1, samples // 2),
        seed=seed,
    )
    found = compare_baselines(model, methods.split(","), data=data, data_root=data_root, options=options, device=device)
    result = found.to_json()
    typer.echo(baseline_table(result))
    if out is not None:
        write_json(out, result)
        typer.echo(f"Written to {out}.")
