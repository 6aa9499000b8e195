"""`maqee what`: which layers are quantized, with which grid and how many bits."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import (
    OUTPUT,
    QUANTIZATION,
    AnyModel,
    Classifier,
    Exits,
    Figures,
    Json,
    Layers,
    Patch,
)
from maqee.cli.output import deliver


def what(
    model: AnyModel,
    exits: Exits = "none",
    method: Annotated[
        str | None,
        typer.Option(help="Quantization method (see `maqee ls`).", show_default="repq", rich_help_panel=QUANTIZATION),
    ] = None,
    weight_bits: Annotated[int, typer.Option(help="Weight bits of the blocks.", rich_help_panel=QUANTIZATION)] = 4,
    act_bits: Annotated[int, typer.Option(help="Activation bits.", rich_help_panel=QUANTIZATION)] = 4,
    patch: Patch = None,
    classifier: Classifier = None,
    layer: Layers = None,
    every_layer: Annotated[
        bool, typer.Option("--every-layer", help="Do not put equal layers together.", rich_help_panel=OUTPUT)
    ] = False,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Print what is quantized, with which grid and bits, as the code itself does it; of a compressed run, as it is."""
    from maqee.evaluation.what import what as list_layers
    from maqee.quant.settings import QuantSettings, parse_bits, parse_override
    from maqee.report.layer_table import layer_table, weights_line

    settings = QuantSettings(
        weight_bits=weight_bits,
        act_bits=act_bits,
        patch=parse_bits(patch or "float", "--patch"),
        classifier=parse_bits(classifier or "float", "--classifier"),
        overrides=tuple(parse_override(text) for text in layer or ()),
    )
    found = list_layers(model, method, settings, exits)
    deliver(found, lambda values: layer_table(values, every_layer), json, out)
    if not json:
        typer.echo(weights_line(found.to_json()))
