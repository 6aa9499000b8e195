"""The pieces every backbone and many exit heads are built of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from maqee.models.config import ReadoutKind
from maqee.models.exporting import is_exporting
from maqee.parts import attention_macs, linear_macs

# cuDNN's attention is left out on purpose: under torch.compile (seen with torch 2.11 on an H200) it gave gradients
# that were wrong by orders of magnitude in models with attention exit heads, and training collapsed silently.
ATTENTION_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

FEW_TOKENS = 16  # as in a window of 4 x 4

_SPECIAL_TOKENS = {"class": 1, "class+distillation": 2}  # what is read of the sequence; otherwise all of it


class Attend(nn.Module):
    """softmax(q k^T / sqrt(d) + bias) v.

    A module of its own, without weights, so that a version with quantized matrix products can take its place.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """q, k, v: (batch, heads, tokens, head width); bias broadcasts to (batch, heads, tokens, tokens)."""
        if torch.compiler.is_compiling() and q.is_cuda and q.shape[-2] <= FEW_TOKENS:
            return attend_to_few(q, k, v, bias)
        with sdpa_kernel(ATTENTION_BACKENDS):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def attend_to_few(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """The same as two matrix products, to be compiled.

    Fused kernels work on tiles of 64 rows and more, most of which a short window leaves idle; with a bias that learns
    they take half as long again as this, forward and backward.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)  # (batch, heads, tokens, tokens)
    scores = scores if bias is None else scores + bias
    return scores.float().softmax(dim=-1).to(v.dtype) @ v


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, dim: int, heads: int, qkv_bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.attend = Attend()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x: (batch, tokens, dim)."""
        return self.proj(self.mix(x, bias))

    def mix(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """All but the projection at the end, (batch, tokens, dim) to the same shape."""
        parts = self.qkv(x).chunk(3, dim=-1)  # each (batch, tokens, dim)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)  # (batch, heads, tokens, .)
        mixed: Tensor = self.attend(q, k, v, bias)
        return mixed.transpose(1, 2).reshape(x.shape)

    def macs(self, tokens: int, keys: int | None = None) -> dict[str, int]:
        """Of each layer, for `tokens` rows that each see `keys` others (all of them unless windowed)."""
        dim = self.proj.in_features
        return {
            "qkv": linear_macs(tokens, dim, 3 * dim),
            "attention": attention_macs(tokens, keys or tokens, dim),
            "projection": linear_macs(tokens, dim, dim),
        }


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., dim)."""
        return self.fc2(self.act(self.fc1(x)))

    def macs(self, rows: int) -> dict[str, int]:
        """Of both layers, for `rows` rows."""
        layers = {"fc1": self.fc1, "fc2": self.fc2}
        return {name: linear_macs(rows, layer.in_features, layer.out_features) for name, layer in layers.items()}


class DropPath(nn.Module):
    """Stochastic depth: in training, drop the whole residual branch of a sample with probability `rate`."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, ...)."""
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        mask = torch.rand(x.shape[0], *[1] * (x.ndim - 1), device=x.device) < keep
        return x * mask.to(x.dtype) / keep


def as_picture(patches: Tensor, grid: tuple[int, int]) -> Tensor:
    """(batch, rows * columns, dim) to (batch, dim, rows, columns)."""
    return patches.transpose(1, 2).unflatten(2, grid)


def as_tokens(picture: Tensor) -> Tensor:
    """The reverse of `as_picture`."""
    return picture.flatten(2).transpose(1, 2)


class TokenDepthwise(nn.Conv2d):
    """A depthwise 3x3 convolution over tokens laid out on a grid."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, 3, padding=1, groups=dim)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:  # type: ignore[override]
        """(batch, n, dim) to the same shape."""
        return self.convolve(tokens, grid, self.weight, self.bias)

    def convolve(self, tokens: Tensor, grid: tuple[int, int], weight: Tensor, bias: Tensor | None) -> Tensor:
        """The same with other weights.

        Compiled, it is nine shifted products, which fuse with what stands around them; the depthwise kernels of the
        libraries take many times longer in half precision, forward and backward. Exported, it is a convolution.
        """
        if is_exporting() or not torch.compiler.is_compiling():
            return as_tokens(self._conv_forward(as_picture(tokens, grid), weight, bias))
        rows, columns = grid
        padded = F.pad(tokens.unflatten(1, grid), (0, 0, 1, 1, 1, 1))  # (batch, rows + 2, columns + 2, dim)
        out = torch.zeros_like(tokens).unflatten(1, grid)
        for down in range(3):
            for right in range(3):
                out = out + padded[:, down : down + rows, right : right + columns] * weight[:, 0, down, right]
        return (out if bias is None else out + bias).flatten(1, 2)


class Readout(nn.Module):
    """Tokens to logits; with `num_classes` 0, tokens to the features a classifier would see."""

    def __init__(self, dim: int, num_classes: int, kind: ReadoutKind, prefix_tokens: int) -> None:
        super().__init__()
        self.kind = kind
        self.prefix_tokens = prefix_tokens
        width = 2 * dim if kind == "class+mean" else dim
        self.linear = nn.Linear(width, num_classes) if num_classes else nn.Identity()
        if kind == "class+distillation":
            self.distillation = nn.Linear(dim, num_classes) if num_classes else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, prefix + patches, dim), already normalised."""
        if self.kind == "class+distillation":
            both: Tensor = self.linear(tokens[:, 0]) + self.distillation(tokens[:, 1])
            return both / 2
        logits: Tensor = self.linear(self.pool(tokens))
        return logits

    def reads(self, tokens: Tensor) -> Tensor:
        """Of all tokens those that it looks at: a norm in front of it, which is by token, need not see the others."""
        return tokens[:, : _SPECIAL_TOKENS.get(self.kind)]

    def pool(self, tokens: Tensor) -> Tensor:
        """What one classifier reads: (batch, dim), or (batch, 2 dim) with "class+mean"."""
        if self.kind == "mean":
            return tokens[:, self.prefix_tokens :].mean(dim=1)
        if self.kind == "class+mean":
            return torch.cat([tokens[:, 0], tokens[:, self.prefix_tokens :].mean(dim=1)], dim=-1)
        return tokens[:, 0]

    def macs(self) -> int:
        """The classifiers; pooling is additions only."""
        sizes = [(getattr(m, "in_features", 0), getattr(m, "out_features", 0)) for m in self.children()]
        return sum(linear_macs(1, width, classes) for width, classes in sizes)


def init_weights(module: nn.Module) -> None:
    """The start of the original ViT: Xavier for weights, zero for biases, and classifiers that begin undecided."""
    for child in module.modules():
        if isinstance(child, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(child.weight.flatten(1))
            if child.bias is not None:
                nn.init.zeros_(child.bias)
    for child in module.modules():
        if isinstance(child, Readout):
            for name, parameter in child.named_parameters():
                if name.endswith("weight"):
                    nn.init.trunc_normal_(parameter, std=0.02)
