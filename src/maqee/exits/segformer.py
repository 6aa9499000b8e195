"""SegFormer's all-MLP decoder (Xie et al., NeurIPS 2021) on a plain vision transformer.

The original reads four stages of growing stride. A plain ViT has one grid after every block, so here the decoder reads
the outputs of four blocks spread up to its own, and there is nothing to resize. SegFormer's encoder normalises each
stage it hands on; the blocks of a ViT do not, so the decoder has a LayerNorm for each of its four inputs, which starts
from the backbone's final norm.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits.batch_norm import TokenBatchNorm
from maqee.exits.heads import ExitHead, heads
from maqee.exits.vit_ee import copy_matching
from maqee.models import Backbone, TokenShape
from maqee.models.layers import as_picture, init_weights
from maqee.parts import linear_macs

INPUTS = 4
DROPOUT = 0.1
_UNEVEN = {6: (1, 3, 5, 6)}  # the published choice where a quarter of the depth is no whole number


def spread(block: int) -> tuple[int, ...]:
    """The four blocks that the decoder after `block` reads, its own last.

    A quarter of the way each, rounded down; in the first three blocks one is read more than once.

    Example:
        >>> [spread(block) for block in (4, 6, 8, 10, 12)]
        [(1, 2, 3, 4), (1, 3, 5, 6), (2, 4, 6, 8), (2, 5, 7, 10), (3, 6, 9, 12)]
    """
    return _UNEVEN.get(block, tuple(max(1, block * part // INPUTS) for part in range(1, INPUTS + 1)))


@heads.register("segformer")
class SegformerHead(ExitHead):
    """Four maps, each through a linear layer, side by side, fused, classified: logits (batch, classes, rows, columns).

    The logits are those of the token grid. Whoever compares them with a mask stretches them to its size. With no
    classes the output is the fused features, as of a backbone without a classifier.

    Attributes:
        width: channels of the decoder; 0 means as many as the backbone has.
    """

    also_final = True
    width: ClassVar[int] = 0

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__()
        if shape.window:
            raise MaqeeError("The segformer head reads blocks of one grid, which Swin has not: use a plain ViT.")
        self.shape = shape
        self.reads = spread(shape.block)[:-1]
        self.classes = num_classes
        self.channels = width = self.width or shape.dim
        self.norms = nn.ModuleList(nn.LayerNorm(shape.dim, eps=1e-6) for _ in range(INPUTS))
        self.projections = nn.ModuleList(nn.Linear(shape.dim, width) for _ in range(INPUTS))
        self.fuse = nn.Linear(INPUTS * width, width, bias=False)  # a 1x1 convolution
        self.fuse_norm = TokenBatchNorm(width)
        self.act = nn.ReLU()
        self.dropout = nn.Dropout(DROPOUT)
        self.classify = nn.Linear(width, num_classes) if num_classes else nn.Identity()
        init_weights(self)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) of four blocks, shallowest first, to a picture of logits."""
        maps = [
            project(norm(self._patches(x)))
            for project, norm, x in zip(self.projections, self.norms, tokens, strict=True)
        ]
        return self.join(maps)

    def join(self, maps: list[Tensor]) -> Tensor:
        """What becomes of the four maps (batch, n, width), shallowest first."""
        x = torch.cat(maps[::-1], dim=-1)  # (batch, n, 4 width), the deepest first
        x = self.act(self.fuse_norm(self.fuse(x)))
        x = x * self.dropout(torch.ones_like(x[:, :1]))  # whole channels of a sample, as in the original
        return as_picture(self.classify(x), self.shape.grid)

    def _patches(self, tokens: Tensor) -> Tensor:
        """The patch tokens alone."""
        return tokens[:, self.shape.prefix_tokens :][:, : self.shape.patches]

    def macs(self) -> int:
        """Projections, fusion and class convolution."""
        patches, width = self.shape.patches, self.channels
        decoder = INPUTS * linear_macs(patches, self.shape.dim, width) + linear_macs(patches, INPUTS * width, width)
        return decoder + linear_macs(patches, width, self.classes)

    def start_from(self, backbone: Backbone, position: int) -> None:
        """All norms begin as the backbone's final one."""
        for norm in self.norms:
            copy_matching(norm, backbone.norm)


@heads.register("segformer-768")
class WideSegformerHead(SegformerHead):
    """The same with the decoder width of SegFormer's larger models, whatever the backbone's."""

    width = 768
