"""A vision transformer with timm's module names, attributes and options, written from its documentation.

timm itself is not needed anywhere. What it computes is restated here in the plainest way, as a whole: nothing is shared
with our own models.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers import randomize


class LayerNorm(nn.LayerNorm):
    """timm has a class of its own, with another epsilon than torch."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__(dim, eps=eps)


class GELU(nn.Module):
    """timm has a class of its own for this too; `act_layer="gelu"` chooses it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class QuickGELU(nn.Module):
    """The activation of the original CLIP."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class RmsNorm(nn.Module):
    """A norm without a mean; it has a bias here, so that its tensors do not give it away."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))


class PatchEmbed(nn.Module):
    """Patches to rows and columns of tokens."""

    def __init__(self, size: tuple[int, int], patch: int, dim: int, bias: bool) -> None:
        super().__init__()
        self.img_size = size
        self.grid_size = (size[0] // patch, size[1] // patch)
        self.proj = nn.Conv2d(3, dim, patch, stride=patch, bias=bias)


class Attention(nn.Module):
    """Plain attention with timm's attributes."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, dim = x.shape
        q, k, v = (
            part.view(batch, tokens, self.num_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        weights = (q * self.scale @ k.transpose(2, 3)).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, dim))


class Mlp(nn.Module):
    """Two layers with an activation, among modules that do nothing."""

    def __init__(self, dim: int, hidden: int, act: nn.Module) -> None:
        super().__init__()
        self.fc1, self.act, self.drop1 = nn.Linear(dim, hidden), act, nn.Dropout(0.1)
        self.norm, self.fc2, self.drop2 = nn.Identity(), nn.Linear(hidden, dim), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class LayerScale(nn.Module):
    """A factor for each channel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Block(nn.Module):
    """Norms in front of attention and MLP."""

    def __init__(self, dim: int, heads: int, act: nn.Module, scaled: bool, eps: float = 1e-6) -> None:
        super().__init__()
        self.norm1, self.attn = LayerNorm(dim, eps), Attention(dim, heads)
        self.ls1: nn.Module = LayerScale(dim) if scaled else nn.Identity()
        self.norm2, self.mlp = LayerNorm(dim, eps), Mlp(dim, 2 * dim, act)
        self.ls2: nn.Module = LayerScale(dim) if scaled else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.ls1(self.attn(self.norm1(x)))
        return x + self.ls2(self.mlp(self.norm2(x)))


class ResPostBlock(Block):
    """timm's block with the norms behind: the same tensors."""


class VisionTransformer(nn.Module):
    """The options are timm's; images of any size are taken as with `dynamic_img_size=True`."""

    def __init__(
        self,
        img_size: tuple[int, int] = (32, 32),
        patch_size: int = 8,
        embed_dim: int = 32,
        depth: int = 2,
        num_heads: int = 4,
        num_classes: int = 5,
        act: nn.Module | None = None,
        init_values: float | None = None,
        reg_tokens: int = 0,
        no_embed_class: bool = False,
        pre_norm: bool = False,
        global_pool: str = "token",
        fc_norm: bool | None = None,
    ) -> None:
        super().__init__()
        dim, eps = embed_dim, 1e-5 if pre_norm else 1e-6  # timm's CLIP models have torch's usual epsilon
        after = (global_pool == "avg") if fc_norm is None else fc_norm
        self.global_pool, self.no_embed_class, self.pool_include_prefix = global_pool, no_embed_class, False
        self.num_prefix_tokens = 1 + reg_tokens
        self.pretrained_cfg: dict[str, Any] = {"input_size": (3, 224, 224)}  # of the weights, not of this model
        self.patch_embed = PatchEmbed(img_size, patch_size, dim, bias=not pre_norm)
        patches = self.patch_embed.grid_size[0] * self.patch_embed.grid_size[1]
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.reg_token = nn.Parameter(torch.zeros(1, reg_tokens, dim)) if reg_tokens else None
        self.pos_embed = nn.Parameter(torch.zeros(1, patches + (0 if no_embed_class else 1 + reg_tokens), dim))
        self.norm_pre: nn.Module = LayerNorm(dim, eps) if pre_norm else nn.Identity()
        self.blocks = nn.Sequential(
            *[Block(dim, num_heads, act or nn.GELU(), init_values is not None, eps) for _ in range(depth)]
        )
        self.norm: nn.Module = nn.Identity() if after else LayerNorm(dim, eps)
        self.fc_norm: nn.Module = LayerNorm(dim, eps) if after else nn.Identity()
        self.head = nn.Linear(dim, num_classes) if num_classes else nn.Identity()
        randomize(self, std=0.4)

    def forward(self, images: Tensor) -> Tensor:
        picture = self.patch_embed.proj(images)  # (batch, dim, rows, columns)
        special = [token.expand(len(images), -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        placed = 0 if self.no_embed_class else self.num_prefix_tokens
        rows, columns = self.patch_embed.grid_size
        grid = self.pos_embed[:, placed:].view(1, rows, columns, -1).permute(0, 3, 1, 2)
        if picture.shape[2:] != grid.shape[2:]:
            grid = F.interpolate(grid, size=picture.shape[2:], mode="bicubic", antialias=True)
        patches = (picture + grid).flatten(2).transpose(1, 2)
        prefix = torch.cat(special, dim=1)
        if placed:
            prefix = prefix + self.pos_embed[:, :placed]
        x = self.norm(self.blocks(self.norm_pre(torch.cat([prefix, patches], dim=1))))
        pooled = x[:, 0] if self.global_pool == "token" else x[:, self.num_prefix_tokens :].mean(dim=1)
        return self.head(self.fc_norm(pooled))
