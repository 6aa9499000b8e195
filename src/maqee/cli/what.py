"""`maqee what`: which layers are quantized, with which grid and how many bits."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def what(
    model: Annotated[str, typer.Argument(help="Preset, folder (with or without exits), weights file or Hub name.")],
    method: Annotated[str, typer.Option(help="Quantization method, see `maqee ls`.")] = "repq",
    exits: Annotated[str, typer.Option(help="none, lgvit, vit-ee, or one head kind for all exits.")] = "none",
    weight_bits: Annotated[int, typer.Option(help="Weight bits of the blocks.")] = 4,
    act_bits: Annotated[int, typer.Option(help="Activation bits.")] = 4,
    patch: Annotated[str, typer.Option(help="Bits of the patch embedding: WEIGHT/ACTIVATION or float.")] = "float",
    classifier: Annotated[str, typer.Option(help="Bits of the final classifier, likewise.")] = "float",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="PATTERN=BITS for layers by name; may be repeated, first wins.")
    ] = None,
    every_layer: Annotated[bool, typer.Option("--every-layer", help="Do not put equal layers together.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, every layer.")] = False,
) -> None:
    """Print what is quantized, with which grid and bits, as the code itself does it."""
    from maqee.evaluation.what import describe_quantization
    from maqee.io import to_json
    from maqee.quant.settings import QuantSettings, parse_bits, parse_override

    settings = QuantSettings(
        weight_bits=weight_bits,
        act_bits=act_bits,
        patch=parse_bits(patch, "--patch"),
        classifier=parse_bits(classifier, "--classifier"),
        overrides=tuple(parse_override(text) for text in set_ or ()),
    )
    result = describe_quantization(model, method, settings, exits)
    if json:
        typer.echo(to_json(result), nl=False)
        return
    _print(result, every_layer)


def _print(result: dict[str, Any], every_layer: bool) -> None:
    import sys

    from rich.console import Console
    from rich.table import Table

    from maqee.evaluation.what import group_rows

    title = f"{result['model']} by {result['method']}; bits are weights/input, of attention operand x operand"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("layer", "role", "grid", "asked", "got"):
        table.add_column(name, overflow="fold")
    table.add_column("weights", justify="right")
    for row in result["rows"] if every_layer else group_rows(result["rows"]):
        weights = f"{row['weights']:,}" if row["weights"] else ""
        table.add_row(row["layer"], row["role"], row["grid"], row["asked"], row["got"], weights)
    Console(width=None if sys.stdout.isatty() else 160).print(table, highlight=False)
    share = result["quantized_weights"] / max(1, result["weights"])
    typer.echo(f"{result['quantized_weights']:,} of {result['weights']:,} weights ({share:.1%}) are quantized.")
