"""LGViT's heads (Xu et al., ACM MM 2023): local perception for early exits, global aggregation for late ones.

One departure, on by default: the tokens are normalised before they enter the head. LGViT feeds the raw residual
stream, whose scale grows with depth and whose outlier channels make 4-bit activations useless. `normalize=False` is
the original.

Everything behind a head's last nonlinear step is affine (batch norm by its running statistics, projection, mean), so a
float head at work takes the mean first and projects one row instead of 196: the same numbers up to rounding. Training
needs the features of every patch, and quantized layers round every patch's input: both go the long way.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.exits.batch_norm import TokenBatchNorm
from maqee.exits.heads import ExitHead, heads
from maqee.models import TokenShape
from maqee.models.config import ReadoutKind
from maqee.models.layers import Attention, Readout, TokenDepthwise, init_weights
from maqee.parts import linear_macs

GLOBAL_HEADS = 8


class LgvitHead(ExitHead):
    """The tail both kinds share: pooled features plus the class token, then a classifier.

    With a distillation token there are two classifiers, one for each special token, and their logits are averaged.
    Without special tokens (Swin) the features are normalised and pooled.
    """

    compiled_methods = ("with_features", "pooled_first")

    def __init__(self, shape: TokenShape, num_classes: int, normalize: bool) -> None:
        super().__init__()
        self.shape = shape
        self.norm = nn.LayerNorm(shape.dim, eps=1e-6) if normalize else nn.Identity()
        self.tail_norm = nn.Identity() if shape.prefix_tokens else nn.LayerNorm(shape.dim, eps=1e-6)
        self.readout = Readout(shape.dim, num_classes, _special_readout(shape), shape.prefix_tokens)

    @property
    def affine_end(self) -> nn.Module:
        """The last layer, which is affine unless it is quantized."""
        raise NotImplementedError

    def select(self, patches: Tensor) -> Tensor:
        """The patches that the head reads: (batch, n, dim) to (batch, m, dim)."""
        return patches

    def transform(self, patches: Tensor) -> Tensor:
        """Selected patches to features of the same shape, (batch, m, dim)."""
        raise NotImplementedError

    def pooled(self, patches: Tensor) -> Tensor:
        """The mean of these features without the features themselves: (batch, 1, dim)."""
        raise NotImplementedError

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        # Without special tokens a norm stands between features and mean.
        affine = self.shape.prefix_tokens and isinstance(self.affine_end, nn.Linear)
        if affine and not self.training:
            return self.pooled_first(tokens[-1])
        return self.with_features(tokens[-1])[0]

    def with_features(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the features (batch, m, dim) that LGViT's distillation compares."""
        special, patches = self._split(tokens)
        features = self.transform(patches)
        pooled = self.tail_norm(features).mean(dim=1, keepdim=True)  # (batch, 1, dim)
        return self.readout(pooled + special if self.shape.prefix_tokens else pooled), features

    def pooled_first(self, tokens: Tensor) -> Tensor:
        """The same logits, with the mean taken before what is affine."""
        special, patches = self._split(tokens)
        logits: Tensor = self.readout(self.pooled(patches) + special)
        return logits

    def _split(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Special tokens and selected patches; a norm is by token, so only what is read is normalised."""
        prefix = self.shape.prefix_tokens
        return self.norm(tokens[:, :prefix]), self.norm(self.select(tokens[:, prefix:]))


def _special_readout(shape: TokenShape) -> ReadoutKind:
    """The special tokens that carry the answer; the class token where the backbone reads the mean but has one."""
    if not shape.prefix_tokens:
        return "mean"
    return "class+distillation" if shape.readout == "class+distillation" else "class"


class LocalHead(LgvitHead):
    """Local perception: 1x1, depthwise 3x3 (kernel 3 only), 1x1 convolutions with a residual.

    LGViT's order: activation before batch norm.
    """

    def __init__(self, shape: TokenShape, num_classes: int, kernel: int, normalize: bool = True) -> None:
        super().__init__(shape, num_classes, normalize)
        dim = shape.dim
        self.expand = nn.Linear(dim, dim)
        self.expand_norm = TokenBatchNorm(dim)
        self.depthwise: TokenDepthwise | None = None
        if kernel == 3:
            self.depthwise = TokenDepthwise(dim)
            self.depthwise_norm = TokenBatchNorm(dim)
        self.project = nn.Linear(dim, dim)
        self.project_norm = TokenBatchNorm(dim)
        init_weights(self)
        nn.init.zeros_(self.project_norm.weight)  # the residual branch starts silent

    @property
    def affine_end(self) -> nn.Module:
        """The second 1x1 convolution."""
        return self.project

    def transform(self, patches: Tensor) -> Tensor:
        """(batch, n, dim) to the same shape."""
        return patches + self._finish(self._begin(patches))

    def pooled(self, patches: Tensor) -> Tensor:
        """(batch, 1, dim)."""
        return patches.mean(dim=1, keepdim=True) + self._finish(self._begin(patches).mean(dim=1, keepdim=True))

    def _begin(self, patches: Tensor) -> Tensor:
        """Up to the last activation."""
        x = F.gelu(self.expand(patches))
        if self.depthwise is not None:
            x = F.gelu(self.depthwise(self.expand_norm(x), self.shape.grid))
        return x

    def _finish(self, x: Tensor) -> Tensor:
        """Behind it: norm, 1x1 convolution, norm."""
        last_norm = self.expand_norm if self.depthwise is None else self.depthwise_norm
        return self.project_norm(self.project(last_norm(x)))

    def macs(self) -> int:
        """Convolutions and classifier, for every patch."""
        patches, dim = self.shape.patches, self.shape.dim
        depthwise = 0 if self.depthwise is None else 9 * patches * dim
        return 2 * linear_macs(patches, dim, dim) + depthwise + self.readout.macs()


class GlobalHead(LgvitHead):
    """Global aggregation: self-attention with 8 heads over every `stride`-th patch, no residual, no MLP."""

    def __init__(self, shape: TokenShape, num_classes: int, stride: int, normalize: bool = True) -> None:
        super().__init__(shape, num_classes, normalize)
        self.stride = stride
        self.attention = Attention(shape.dim, GLOBAL_HEADS, qkv_bias=False)
        init_weights(self)

    @property
    def affine_end(self) -> nn.Module:
        """The projection behind attention."""
        return self.attention.proj

    def select(self, patches: Tensor) -> Tensor:
        """(batch, n, dim) to (batch, n / stride^2, dim)."""
        return pick(patches, self.shape.grid, self.stride)

    def transform(self, patches: Tensor) -> Tensor:
        """(batch, m, dim) to the same shape."""
        return self.attention(patches)

    def pooled(self, patches: Tensor) -> Tensor:
        """(batch, 1, dim)."""
        return self.attention.proj(self.attention.mix(patches).mean(dim=1, keepdim=True))

    def macs(self) -> int:
        """Attention on the picked patches and the classifier, for every picked patch."""
        rows, columns = (-(-side // self.stride) for side in self.shape.grid)
        return sum(self.attention.macs(rows * columns).values()) + self.readout.macs()


def pick(patches: Tensor, grid: tuple[int, int], stride: int) -> Tensor:
    """Every `stride`-th patch in both directions: average pooling with kernel 1, as LGViT has it."""
    picture = patches.unflatten(1, grid)[:, ::stride, ::stride]  # (batch, rows, columns, dim)
    return torch.flatten(picture, 1, 2)


for _suffix, _normalize in (("", True), ("-raw", False)):
    for _kernel in (3, 1):
        heads.register(f"local-{_kernel}x{_kernel}{_suffix}")(partial(LocalHead, kernel=_kernel, normalize=_normalize))
    for _stride in (1, 2, 3):
        heads.register(f"global-s{_stride}{_suffix}")(partial(GlobalHead, stride=_stride, normalize=_normalize))
