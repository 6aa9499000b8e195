"""`maqee cost`: what a model costs, part by part."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import MODEL, QUANTIZATION, AnyModel, Classifier, Exits, Figures, Json, Patch, parse_numbers
from maqee.cli.output import deliver


def cost(
    model: AnyModel,
    exits: Exits = "none",
    final: Annotated[
        str | None,
        typer.Option(help="Head kind instead of the model's own classifier, e.g. segformer.", rich_help_panel=MODEL),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(
            help="Number of classes; the model's own when left out, 0 leaves classifiers out.",
            min=0,
            rich_help_panel=MODEL,
        ),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Input size; the model's own when left out.", rich_help_panel=MODEL)
    ] = None,
    exit_mass: Annotated[
        str | None,
        typer.Option(
            help="Share of images leaving at each exit and at full depth, e.g. 0.3,0.2,0.2,0.1,0.2; left out, nobody "
            "leaves early.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    weight_bits: Annotated[
        int,
        typer.Option(help="Weight bits of blocks, heads and mergings; 32 is float.", rich_help_panel=QUANTIZATION),
    ] = 32,
    act_bits: Annotated[
        int, typer.Option(help="Activation bits of the same; 32 is float.", rich_help_panel=QUANTIZATION)
    ] = 32,
    patch: Patch = None,
    classifier: Classifier = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Print MACs and BOPs (bit operations) of every part of a model."""
    from maqee.evaluation.cost_report import cost as count_cost
    from maqee.quant.settings import parse_bits
    from maqee.report.cost_table import cost_table

    found = count_cost(
        model,
        weight_bits=weight_bits,
        act_bits=act_bits,
        exits=exits,
        exit_mass=parse_numbers(exit_mass, "--exit-mass"),
        patch=parse_bits(patch or "float", "--patch"),
        classifier=parse_bits(classifier or "float", "--classifier"),
        image_size=image_size,
        final=final,
        num_classes=classes,
    )
    deliver(found, cost_table, json, out)
