"""Widths as text: a column for each block, a line for each kind of layer, and whatever else is not full precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maqee.widths import FULL, LAYERS

MOST_COLUMNS = 12  # blocks beside each other; more are shown in several parts
_NAME = 21  # characters in front of the columns
_OTHERS = {"patch": "patch embedding", "classifier": "classifier"}


def bit_lines(bits: Mapping[str, Any] | Sequence[float]) -> list[str]:
    """Weight/activation bits of a model.

    Args:
        bits: what `BitSettings.to_json` gives; results from before there were pairs have one number a block.
    """
    if not isinstance(bits, Mapping):
        return _in_parts({"weights": [f"{width:g}" for width in bits]})
    blocks = bits["blocks"]
    if all(_is_uniform(block) for block in blocks):
        lines = _in_parts({"all layers": [pair_words(block["qkv"]) for block in blocks]})
    else:
        lines = _in_parts({layer: [pair_words(block[layer]) for block in blocks] for layer in LAYERS})
    heads = bits["heads"] or [bits["head"]]
    lines.append(f"{'  exit heads':<{_NAME}}{' '.join(map(pair_words, heads))}")
    named = {name: bits[key] for key, name in _OTHERS.items() if tuple(bits[key]) != FULL}
    return lines + [f"{f'  {name}':<{_NAME}}{pair_words(pair)}" for name, pair in named.items()]


def bit_words(bits: Mapping[str, Any] | Sequence[float]) -> str:
    """Widths in one line: of blocks, or of all layers from the first block on where they differ."""
    if not isinstance(bits, Mapping):
        return " ".join(f"{width:g}" for width in bits)
    blocks = bits["blocks"]
    return " ".join(
        pair_words(block["qkv"]) if _is_uniform(block) else ",".join(pair_words(block[layer]) for layer in LAYERS)
        for block in blocks
    )


def pair_words(pair: Sequence[int]) -> str:
    """A pair as a person reads it: "4/6", "8/float" or "float"."""
    words = ["float" if width == 32 else str(width) for width in pair]
    return "float" if tuple(pair) == FULL else "/".join(words)


def _is_uniform(block: Mapping[str, Sequence[int]]) -> bool:
    """Whether all layers of a block have the same widths, as in a block that has one pair."""
    first = tuple(block["qkv"])
    return all(tuple(block[layer]) == ((first[1],) * 2 if layer == "attention" else first) for layer in LAYERS)


def _in_parts(rows: Mapping[str, Sequence[str]]) -> list[str]:
    """Rows of columns, numbered from 1, as wide as they need to be; many columns in parts of equal size."""
    depth = len(next(iter(rows.values())))
    parts = -(-depth // MOST_COLUMNS)
    size = -(-depth // parts)
    width = max(len(cell) for cells in rows.values() for cell in (*cells, str(depth))) + 2
    lines = []
    for start in range(0, depth, size):
        numbers = [str(number) for number in range(start + 1, min(start + size, depth) + 1)]
        lines.append(_row("bits of block", numbers, width))
        lines += [_row(f"  {name}", cells[start : start + size], width) for name, cells in rows.items()]
    return lines


def _row(name: str, cells: Sequence[str], width: int) -> str:
    return f"{name:<{_NAME}}" + "".join(f"{cell:<{width}}" for cell in cells).rstrip()
