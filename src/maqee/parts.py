"""The vocabulary of cost: a model is a list of parts, each with a number of multiply-accumulates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

PartKind = Literal["patch", "linear", "attention", "merge", "head", "classifier"]


class Part(NamedTuple):
    """One costed piece of a model.

    Attributes:
        name: what a person calls it, e.g. "block 3 qkv".
        kind: decides which bit-widths apply.
        macs: multiply-accumulates for one image.
        block: the 1-based block whose execution implies this part's; 0 is executed for every image. A part of kind
            "head" belongs to the block it follows; the final classifier belongs to the last block.
        layer: which layer of the block it is ("qkv", "attention", "projection", "fc1", "fc2"), or the number of the
            exit head from 0; empty for other parts, and where all layers of a block are counted as one.
    """

    name: str
    kind: PartKind
    macs: int
    block: int
    layer: str = ""


def block_parts(number: int, macs: Mapping[str, int]) -> list[Part]:
    """The layers of a block as parts, from the multiply-accumulates of each."""
    kinds: dict[str, PartKind] = {"attention": "attention"}
    return [
        Part(f"block {number} {layer}", kinds.get(layer, "linear"), count, number, layer)
        for layer, count in macs.items()
    ]


def linear_macs(rows: int, inputs: int, outputs: int) -> int:
    """A matrix product of (rows x inputs) with (inputs x outputs)."""
    return rows * inputs * outputs


def attention_macs(queries: int, keys: int, width: int) -> int:
    """Q K^T and A V together; the number of heads cancels."""
    return 2 * queries * keys * width
