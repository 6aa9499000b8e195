"""LGViT's heads as lists of kernel calls: codes from the first layer's input to the last one's, and their mean.

Tokens are read once, where they lie. Behind a head's last codes everything is affine up to the mean over tokens, so
that it is these codes that are added up, and the last layer multiplies one row an image.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from maqee.exits.heads import ExitHead
from maqee.exits.lgvit import GlobalHead, LgvitHead, LocalHead
from maqee.models.layers import Readout
from maqee.quant.coded import WeightState
from maqee.runtime.kernels.attention import MOST_TOKENS, CodedAttend
from maqee.runtime.kernels.branches import KernelAttention, expect_codes
from maqee.runtime.kernels.depthwise import Depthwise
from maqee.runtime.kernels.gathering import Gatherer
from maqee.runtime.kernels.linear import Linear
from maqee.runtime.kernels.passing import Affine, Coded, Target
from maqee.runtime.kernels.pooled_linear import PooledLinear
from maqee.runtime.kernels.readouts import PooledReadout
from maqee.runtime.kernels.rows import RowCoder
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights
from maqee.runtime.kernels.token_rows import Picked, TokenReader


class LocalLayers(NamedTuple):
    """The layers of a local head, as kernels want them.

    Attributes:
        expand: the first one.
        depthwise: weights of the convolution, and its input's grid; None where there is none.
        project: the last one, with one group of columns.
    """

    expand: StoredWeights
    depthwise: tuple[WeightState, StoredGrid] | None
    project: StoredWeights


class PooledHead(ExitHead):
    """A head that reads special tokens and the mean of what it makes of patches, of tokens in whatever they travel in.

    Args:
        head: the head.
        readout: its classifier, which may have kernels of its own.
        picked: the patches that it reads.
        first: the layer that reads their codes.
        last: the layer whose mean is taken.
        residual: whether the mean of the patches themselves is added.
    """

    def __init__(
        self,
        head: LgvitHead,
        readout: nn.Module,
        picked: Picked,
        first: StoredWeights,
        last: StoredWeights,
        residual: bool,
    ) -> None:
        super().__init__()
        self.readout, self.picked, self.last = readout, picked, PooledLinear(last)
        norm = head.norm if isinstance(head.norm, nn.LayerNorm) else None
        special = 2 if head.readout.kind == "class+distillation" else 1
        pooled = Affine(torch.ones_like(self.last.bias), self.last.bias)
        if residual and norm is not None:
            pooled = Affine(norm.weight.detach(), norm.bias.detach() + self.last.bias)
        self.read = TokenReader(picked, norm, first, adds_up=residual)
        self.gather = Gatherer(norm, special, pooled, beside=False, grid=last.grid)

    def last_codes(self, coded: Coded, images: int) -> Tensor:
        """Codes of the patches to those that the last layer reads, or to sums of them: (images * rows, width)."""
        raise NotImplementedError

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        x = tokens[-1]
        coded, totals = self.read(x)
        assert coded is not None
        codes = self.last_codes(coded, len(x))
        pooled, mean = self.gather(x, totals, codes, self.picked.among(x.shape[1]))
        assert mean is not None
        self.last.add_to(pooled.view(-1, x.shape[2]), mean)
        logits: Tensor = self.readout(pooled)
        return logits


class KernelLocalHead(PooledHead):
    """Local perception.

    Args:
        head: the head.
        readout: its classifier, which may have kernels of its own.
        layers: its layers.
    """

    def __init__(self, head: LocalHead, readout: nn.Module, layers: LocalLayers) -> None:
        project = Affine.of(head.project_norm).behind(layers.project)
        picked = Picked(head.shape.prefix_tokens) if layers.depthwise is None else Picked.from_grid(head.shape)
        super().__init__(head, readout, picked, layers.expand, project, residual=True)
        self.expand, self.depthwise = _begin(head, layers, Target.plain([project.grid], project.inputs))

    def last_codes(self, coded: Coded, images: int) -> Tensor:
        """Codes of all patches, or their sums over columns of an image."""
        expanded = expect_codes(self.expand(coded))
        return expanded.codes if self.depthwise is None else self.depthwise.pooled(expanded)


class KernelGlobalHead(PooledHead):
    """Global aggregation.

    Args:
        head: the head.
        readout: its classifier, which may have kernels of its own.
        attention: its attention on kernels.
        plain: does the same for more patches than attention has room for, from tokens in float32.
    """

    def __init__(self, head: GlobalHead, readout: nn.Module, attention: KernelAttention, plain: nn.Module) -> None:
        picked = Picked.from_grid(head.shape, head.stride)
        proj, attend = attention.proj.weights, attention.attend
        super().__init__(head, readout, picked, attention.code.weights, proj, residual=False)
        self.qkv, self.plain = attention.qkv, plain
        target = Target.plain([proj.grid], proj.inputs)
        self.attend = CodedAttend(attend.operands, attend.p, attend.heads, attend.head_width, target)

    def last_codes(self, coded: Coded, images: int) -> Tensor:
        """Codes of the patches that are read."""
        return expect_codes(self.attend(expect_codes(self.qkv(coded)), images)).codes

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        x = tokens[-1]
        return super().forward(x) if self.picked.among(x.shape[1]) <= MOST_TOKENS else self.plain(x.float())


class KernelFeaturesHead(ExitHead):
    """Local perception where there are no special tokens: a norm of the features stands in front of their mean.

    Args:
        head: the head.
        readout: its classifier, which may have kernels of its own.
        layers: its layers.
    """

    def __init__(self, head: LocalHead, readout: Readout, layers: LocalLayers) -> None:
        super().__init__()
        assert isinstance(head.tail_norm, nn.LayerNorm)
        self.norm, self.code = head.norm, RowCoder(layers.expand)
        self.readout = PooledReadout(head.tail_norm, readout)
        self.expand, self.depthwise = _begin(head, layers, Target.input_of(layers.project))
        self.project = Linear(Affine.of(head.project_norm).behind(layers.project))

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        patches = self.norm(tokens[-1]).contiguous()
        coded = expect_codes(self.expand(self.code(patches)))
        if self.depthwise is not None:
            coded = self.depthwise(coded)
        features = self.project(coded, patches.view(-1, patches.shape[-1]))
        assert isinstance(features, Tensor)
        logits: Tensor = self.readout(features.view_as(patches))
        return logits


def _begin(head: LocalHead, layers: LocalLayers, target: Target) -> tuple[Linear, Depthwise | None]:
    """All but a local head's last layer, whose codes are the target."""
    norm, depthwise = Affine.of(head.expand_norm), layers.depthwise
    if depthwise is None:
        return Linear(layers.expand, target, gelu=True, affine=norm), None
    middle = Target.plain([depthwise[1]], layers.expand.outputs)
    second = Depthwise(*depthwise, head.shape.grid, Affine.of(head.depthwise_norm), target)
    return Linear(layers.expand, middle, gelu=True, affine=norm), second
