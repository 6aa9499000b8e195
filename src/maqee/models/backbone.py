"""What every backbone offers: an embedding, a list of blocks, a step between blocks, a norm and a head."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from maqee.models.config import BackboneConfig, ReadoutKind
from maqee.models.preprocessing import Preprocessing
from maqee.parts import Part


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

        x = backbone.embedding(images)
        for number, block in enumerate(backbone.blocks, start=1):
            x = block(backbone.before(number, x))
        logits = backbone.finish(x)
    """

    config: BackboneConfig
    preprocessing: Preprocessing
    embedding: nn.Module
    blocks: nn.ModuleList
    norm: nn.Module
    head: nn.Module

    def before(self, number: int, x: Tensor) -> Tensor:
        """The step in front of a block that is not part of it: nothing, patch merging (Swin), positions (YOLOS)."""
        return x

    def finish(self, x: Tensor) -> Tensor:
        """Final norm and classifier."""
        return self.head(self.norm(x))

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (batch, channels, height, width) to logits (batch, classes), or to a detector's output."""
        x = self.embedding(images)
        for number, block in enumerate(self.blocks, start=1):
            x = block(self.before(number, x))
        return self.finish(x)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    def compilable(self) -> list[nn.Module]:
        """The pieces that are worth compiling one by one."""
        return list(self.blocks)

    def token_shape(self, number: int) -> TokenShape:
        """Shape of the output of a block."""
        raise NotImplementedError

    def parts(self) -> list[Part]:
        """Every costed piece with its multiply-accumulates."""
        raise NotImplementedError
