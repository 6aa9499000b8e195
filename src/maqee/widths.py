"""The vocabulary of widths: how many bits the weights and the activations of every part of a model have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from maqee.errors import MaqeeError
from maqee.parts import Part

BitPair = tuple[int, int]  # (weight, activation)
FULL: BitPair = (32, 32)


class BlockWidths(NamedTuple):
    """(weight, activation) bits of the five layers of a block.

    Attention products multiply two activations, so both numbers of their pair are activation bits.
    """

    qkv: BitPair
    attention: BitPair
    projection: BitPair
    fc1: BitPair
    fc2: BitPair

    @classmethod
    def uniform(cls, weight: int, activation: int) -> BlockWidths:
        """The same widths in all layers."""
        pair = (weight, activation)
        return cls(pair, (activation, activation), pair, pair, pair)

    @property
    def linear(self) -> tuple[BitPair, ...]:
        """Of the four layers with weights."""
        return self.qkv, self.projection, self.fc1, self.fc2


LAYERS: tuple[str, ...] = BlockWidths._fields


@dataclass(frozen=True, kw_only=True)
class BitSettings:
    """Widths of every part.

    Attributes:
        blocks: of every block.
        patch: of the patch embedding; full precision by default, as in the paper.
        classifier: of the final classifier; likewise.
        head: of exit heads that are not listed in `heads`.
        heads: of every exit head, in order, where they differ.
        merge: of Swin's patch mergings.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    blocks: tuple[BlockWidths, ...]
    patch: BitPair = FULL
    classifier: BitPair = FULL
    head: BitPair = (4, 4)
    heads: tuple[BitPair, ...] = ()
    merge: BitPair = (4, 4)

    def __post_init__(self) -> None:
        pairs = (self.patch, self.classifier, self.head, self.merge, *self.heads)
        for pair in (*pairs, *(pair for block in self.blocks for pair in block)):
            for bits in pair:
                if not 1 <= bits <= 32:
                    raise MaqeeError(f"Bit-widths go from 1 to 32, not {bits}.")

    @classmethod
    def uniform(cls, weight: int, activation: int, depth: int) -> BitSettings:
        """The same widths in every block, head and merging."""
        pair = (weight, activation)
        return cls(blocks=(BlockWidths.uniform(weight, activation),) * depth, head=pair, merge=pair)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def mean_weights(self) -> tuple[float, ...]:
        """Mean weight bits of each block's layers."""
        return tuple(sum(pair[0] for pair in block.linear) / len(block.linear) for block in self.blocks)

    @property
    def block_weights(self) -> tuple[int, ...]:
        """Weight bits of each block, as in the paper; of layers that differ, those of most of them."""
        return tuple(Counter(pair[0] for pair in block.linear).most_common(1)[0][0] for block in self.blocks)

    def with_weights(self, weights: Sequence[int]) -> BitSettings:
        """The same with these weight bits in all layers of each block."""
        if len(weights) != self.depth:
            raise MaqeeError(f"There are {len(weights)} widths for {self.depth} blocks: give one for each.")
        blocks = []
        for block, bits in zip(self.blocks, weights, strict=True):
            pairs = {name: (bits, pair[1]) for name, pair in block._asdict().items() if name != "attention"}
            blocks.append(block._replace(**pairs))
        return replace(self, blocks=tuple(blocks))

    def to_json(self) -> dict[str, Any]:
        """Plain values with the names of layers, which can be read back as they are."""
        return {**asdict(self), "blocks": [block._asdict() for block in self.blocks]}

    def of(self, part: Part) -> BitPair:
        """(weight, activation) bits of a part."""
        if part.kind in ("linear", "attention"):
            return self._of_block(part)
        if part.kind == "head":
            index = int(part.layer or 0)
            return self.heads[index] if self.heads else self.head
        return {"patch": self.patch, "classifier": self.classifier, "merge": self.merge}[part.kind]

    def _of_block(self, part: Part) -> BitPair:
        block = self.blocks[part.block - 1]
        if part.layer:
            return block[LAYERS.index(part.layer)]
        if part.kind == "attention":
            return block.attention
        if len(set(block.linear)) > 1:
            raise MaqeeError(f"{part.name} stands for layers with different widths: its costs must be listed by layer.")
        return block.qkv

    def with_block(self, number: int, block: BlockWidths) -> BitSettings:
        """The same with other widths in one block, counted from 1."""
        return replace(self, blocks=(*self.blocks[: number - 1], block, *self.blocks[number:]))
