"""What every backbone offers: an embedding, a list of blocks, a step between blocks, a norm and a head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn

from maqee.models.config import BackboneConfig, ReadoutKind, config_to_json
from maqee.models.preprocessing import Preprocessing
from maqee.parts import Part

BACKBONE_FORMAT, VERSION = "maqee-backbone", 1


class TokenShape(NamedTuple):
    """What comes out of a block: all that an exit head needs to know to attach there.

    Attributes:
        block: 1-based number of the block.
        heads: attention heads of the block.
        mlp_dim: hidden width of the block's MLP.
        readout: which tokens the backbone's own classifier reads.
        window: side of the attention windows; 0 when every token sees every other.
        detection_tokens: tokens behind the patches that stand for objects.
    """

    block: int
    dim: int
    grid: tuple[int, int]
    prefix_tokens: int
    heads: int
    mlp_dim: int
    readout: ReadoutKind
    window: int = 0
    detection_tokens: int = 0

    @property
    def patches(self) -> int:
        """Patch tokens."""
        return self.grid[0] * self.grid[1]

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prefix_tokens + self.patches + self.detection_tokens


class Backbone(nn.Module):
    """Base class of ViT and Swin. Blocks are numbered from 1 wherever a person reads the number.

    A caller that wants to stop early walks the blocks itself::

        for number, x in backbone.walk(backbone.embedding(images)):
            ...
        logits = backbone.finish(x)

    Attributes:
        classes: names of the classes in the order of the logits; empty where nobody knows them.
    """

    config: BackboneConfig
    preprocessing: Preprocessing
    classes: tuple[str, ...] = ()
    embedding: nn.Module
    blocks: nn.ModuleList
    norm: nn.Module
    head: nn.Module

    def before(self, number: int, x: Tensor) -> Tensor:
        """The step in front of a block that is not part of it: nothing, patch merging (Swin), positions (YOLOS)."""
        return x

    def run_block(self, number: int, x: Tensor) -> Tensor:
        """One block with the step in front of it: tokens after block `number` - 1 to tokens after block `number`."""
        output: Tensor = self.blocks[number - 1](self.before(number, x))
        return output

    def walk(self, x: Tensor, first: int = 1, last: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """The number of each block from `first` to `last` and the tokens after it.

        Args:
            x: tokens in front of block `first`: the embedding, or what block `first` - 1 put out.
            first: 1-based number of the first block.
            last: of the last one, which is the last of all when left out.
        """
        for number in range(first, (last or self.depth) + 1):
            x = self.run_block(number, x)
            yield number, x

    def finish(self, x: Tensor) -> Tensor:
        """Final norm and classifier."""
        return self.head(self.norm(x))

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (batch, channels, height, width) to logits (batch, classes), or to a detector's output."""
        x = self.embedding(images)
        for number in range(1, self.depth + 1):
            x = self.run_block(number, x)
        return self.finish(x)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def to_json(self) -> dict[str, Any]:
        """What, with the state dict, makes the model again."""
        described: dict[str, Any] = {
            "format": BACKBONE_FORMAT,
            "version": VERSION,
            "backbone": config_to_json(self.config),
            "preprocessing": self.preprocessing.to_json(),
        }
        return described | ({"classes": list(self.classes)} if self.classes else {})

    def compilable(self) -> list[nn.Module]:
        """The pieces that are worth compiling one by one."""
        return list(self.blocks)

    def token_shape(self, number: int) -> TokenShape:
        """Shape of the output of a block."""
        raise NotImplementedError

    def parts(self) -> list[Part]:
        """Every costed piece with its multiply-accumulates."""
        raise NotImplementedError
