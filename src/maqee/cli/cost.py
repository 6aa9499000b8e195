"""`maqee cost`: what a model costs, part by part."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import Json


def cost(
    model: Annotated[str, typer.Argument(help="Preset, folder, weights file or Hub name.")],
    weight_bits: Annotated[int, typer.Option(help="Weight bits of blocks, heads and mergings.")] = 32,
    act_bits: Annotated[int, typer.Option(help="Activation bits of the same.")] = 32,
    exits: Annotated[str, typer.Option(help="none, lgvit, vit-ee, or one head kind for all exits.")] = "none",
    exit_mass: Annotated[
        str | None,
        typer.Option(help="Share of images leaving at each exit and at full depth, e.g. 0.3,0.2,0.2,0.1,0.2."),
    ] = None,
    patch_bits: Annotated[str, typer.Option(help="Weight/activation bits of the patch embedding.")] = "32/32",
    classifier_bits: Annotated[str, typer.Option(help="Weight/activation bits of the final classifier.")] = "32/32",
    image_size: Annotated[int | None, typer.Option(help="Input size; the model's own when left out.")] = None,
    final: Annotated[
        str | None, typer.Option(help="Head kind instead of the model's own classifier, e.g. segformer.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Classes; the model's own when left out, 0 leaves classifiers out.", min=0)
    ] = None,
    json: Json = False,
) -> None:
    """Print MACs and BOPs (bit operations) of every part of a model."""
    from maqee.evaluation.cost_report import cost_report, parse_bits, parse_mass
    from maqee.io import to_json

    report = cost_report(
        model,
        weight_bits=weight_bits,
        act_bits=act_bits,
        exits=exits,
        exit_mass=parse_mass(exit_mass) if exit_mass is not None else None,
        patch_bits=parse_bits(patch_bits),
        classifier_bits=parse_bits(classifier_bits),
        image_size=image_size,
        final=final,
        num_classes=classes,
    )
    if json:
        typer.echo(to_json(report), nl=False)
        return
    typer.echo(f"{'part':<34}{'bits':>7}{'reach':>8}{'MACs':>13}{'BOPs':>13}{'share':>8}")
    for part in report["parts"]:
        bits = f"{part['weight_bits']}/{part['act_bits']}"
        share = part["bops"] / report["bops"]
        typer.echo(
            f"{part['name']:<34}{bits:>7}{part['reach']:>8.3f}{part['macs']:>13.4e}{part['bops']:>13.4e}{share:>8.1%}"
        )
    typer.echo(f"{'total':<34}{'':>7}{'':>8}{report['macs']:>13.4e}{report['bops']:>13.4e}{1:>8.1%}")
    if exits != "none":
        typer.echo(f"{'total without heads':<49}{'':>13}{report['bops_without_heads']:>13.4e}")
