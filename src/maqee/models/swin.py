"""Swin: window attention in stages. Every block is addressable; patch merging is a step of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models.backbone import Backbone, TokenShape
from maqee.models.config import SwinConfig
from maqee.models.layers import Attention, DropPath, Mlp, Readout, init_weights
from maqee.models.patches import PatchConv
from maqee.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from maqee.parts import Part, block_parts, linear_macs


class Embedding(nn.Module):
    """Image to patch tokens; images are padded to a multiple of the patch."""

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.image_size = config.image_size
        self.patch = PatchConv(config.channels, config.dim, config.patch_size)
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, tokens, dim)."""
        if tuple(images.shape[2:]) != self.image_size:
            got = "x".join(map(str, images.shape[2:]))
            want = "x".join(map(str, self.image_size))
            raise MaqeeError(f"This Swin was built for {want} images, not {got}: load it with image_size set.")
        patch = self.patch.stride[0]
        bottom, right = (-side % patch for side in self.image_size)
        tokens: Tensor = self.norm(self.patch(F.pad(images, (0, right, 0, bottom))).flatten(2).transpose(1, 2))
        return tokens


def relative_positions(window: int) -> Tensor:
    """Row of the bias table for every pair of tokens in a window: (window^2, window^2)."""
    axis = torch.arange(window)
    rows, columns = (grid.flatten() for grid in torch.meshgrid(axis, axis, indexing="ij"))
    down = rows[:, None] - rows[None, :] + window - 1
    right = columns[:, None] - columns[None, :] + window - 1
    return down * (2 * window - 1) + right


def shift_mask(grid: tuple[int, int], window: int, shift: int) -> Tensor:
    """-100 between tokens that share a window only because the picture was rolled: (windows, 1, w^2, w^2)."""
    regions = []
    for side in grid:
        index = torch.arange(side)
        regions.append((index >= side - window).long() + (index >= side - shift).long())
    picture = (regions[0][:, None] * 3 + regions[1][None, :])[None, :, :, None].float()
    label = to_windows(picture, window).squeeze(-1)  # (windows, w^2)
    return (label[:, None, :] != label[:, :, None]).float().mul(-100.0)[:, None]


def to_windows(picture: Tensor, window: int) -> Tensor:
    """(batch, rows, columns, dim) to (batch * windows, window^2, dim)."""
    batch, rows, columns, dim = picture.shape
    tiles = picture.view(batch, rows // window, window, columns // window, window, dim)
    return tiles.transpose(2, 3).reshape(-1, window * window, dim)


def from_windows(windows: Tensor, window: int, grid: tuple[int, int]) -> Tensor:
    """The reverse of `to_windows`."""
    rows, columns = grid
    tiles = windows.view(-1, rows // window, columns // window, window, window, windows.shape[-1])
    return tiles.transpose(2, 3).reshape(-1, rows, columns, windows.shape[-1])


class WindowAttention(Attention):
    """Attention inside windows, with a learned bias for each relative position."""

    positions: Tensor

    def __init__(self, dim: int, heads: int, window: int, qkv_bias: bool) -> None:
        super().__init__(dim, heads, qkv_bias)
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        self.register_buffer("positions", relative_positions(window), persistent=False)

    def position_bias(self) -> Tensor:
        """(1, heads, window^2, window^2)."""
        return self.bias_table[self.positions].permute(2, 0, 1)[None]


class SwinBlock(nn.Module):
    """One (shifted) window attention layer and its MLP."""

    mask: Tensor | None

    def __init__(
        self,
        dim: int,
        heads: int,
        mlp_dim: int,
        grid: tuple[int, int],
        window: int,
        *,
        shifted: bool = False,
        qkv_bias: bool = True,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.grid = grid
        self.window = min(window, *grid)
        self.shift = self.window // 2 if shifted and min(grid) > window else 0
        self.padded = (grid[0] + -grid[0] % self.window, grid[1] + -grid[1] % self.window)
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = WindowAttention(dim, heads, self.window, qkv_bias)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = Mlp(dim, mlp_dim)
        self.drop_path = DropPath()
        mask = shift_mask(self.padded, self.window, self.shift) if self.shift else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        x = x + self.drop_path(self.window_attention(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))

    def window_attention(self, x: Tensor) -> Tensor:
        """What attention makes of normalised tokens x: (batch, tokens, dim), before it is added to the stream."""
        batch, _, dim = x.shape
        (rows, columns), (padded_rows, padded_columns) = self.grid, self.padded
        picture = x.view(batch, rows, columns, dim)
        picture = F.pad(picture, (0, 0, 0, padded_columns - columns, 0, padded_rows - rows))
        if self.shift:
            picture = picture.roll((-self.shift, -self.shift), dims=(1, 2))
        bias = self.attn.position_bias()
        if self.mask is not None:  # (batch * windows, heads, w^2, w^2)
            bias = (bias + self.mask).repeat(batch, 1, 1, 1)
        windows = self.attn(to_windows(picture, self.window), bias.to(x.dtype))
        picture = from_windows(windows, self.window, (padded_rows, padded_columns))
        if self.shift:
            picture = picture.roll((self.shift, self.shift), dims=(1, 2))
        return picture[:, :rows, :columns].reshape(batch, rows * columns, dim)

    def macs(self) -> dict[str, int]:
        """Of each layer, for one image; padding tokens run through attention, not through the MLP."""
        padded = self.padded[0] * self.padded[1]
        return self.attn.macs(padded, self.window**2) | self.mlp.macs(self.grid[0] * self.grid[1])


class PatchMerging(nn.Module):
    """Four neighbouring tokens become one of twice the width."""

    def __init__(self, dim: int, grid: tuple[int, int], norm_eps: float) -> None:
        super().__init__()
        self.grid = grid
        self.norm = nn.LayerNorm(4 * dim, eps=norm_eps)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, rows * columns, dim) to (batch, rows/2 * columns/2, 2 dim)."""
        batch, _, dim = x.shape
        rows, columns = self.grid
        picture = F.pad(x.view(batch, rows, columns, dim), (0, 0, 0, columns % 2, 0, rows % 2))
        corners = [picture[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, dim=-1).flatten(1, 2)))

    def macs(self) -> int:
        """The reduction for one image."""
        tokens = -(-self.grid[0] // 2) * -(-self.grid[1] // 2)
        return linear_macs(tokens, self.reduction.in_features, self.reduction.out_features)


class Swin(Backbone):
    """Swin transformer. `merges["5"]` is the patch merging in front of block 5, and so on."""

    config: SwinConfig

    def __init__(self, config: SwinConfig, preprocessing: Preprocessing | None = None) -> None:
        super().__init__()
        self.config = config
        self.preprocessing = preprocessing or Preprocessing(
            image_size=config.image_size, mean=IMAGENET_MEAN, std=IMAGENET_STD
        )
        self.embedding = Embedding(config)
        self.blocks = nn.ModuleList()
        self.merges = nn.ModuleDict()
        for stage, depth in enumerate(config.depths):
            dim, grid = config.stage_dim(stage), config.stage_grid(stage)
            if stage:
                merge = PatchMerging(dim // 2, config.stage_grid(stage - 1), config.norm_eps)
                self.merges[str(len(self.blocks) + 1)] = merge
            self.blocks.extend(
                SwinBlock(
                    dim,
                    config.heads[stage],
                    config.stage_mlp_dim(stage),
                    grid,
                    config.window,
                    shifted=index % 2 == 1,
                    qkv_bias=config.qkv_bias,
                    norm_eps=config.norm_eps,
                )
                for index in range(depth)
            )
        last = config.stage_dim(len(config.depths) - 1)
        self.norm = nn.LayerNorm(last, eps=config.norm_eps)
        self.head: Readout = Readout(last, config.num_classes, "mean", prefix_tokens=0)
        init_weights(self)
        for block in self.blocks:
            assert isinstance(block, SwinBlock)
            nn.init.trunc_normal_(block.attn.bias_table, std=0.02)

    def before(self, number: int, x: Tensor) -> Tensor:
        """Patch merging in front of the first block of stages 2, 3 and 4."""
        key = str(number)
        return self.merges[key](x) if key in self.merges else x

    def token_shape(self, number: int) -> TokenShape:
        """The shape of the block's stage, before any merging."""
        config = self.config
        stage = config.stage_of(number - 1)
        return TokenShape(
            block=number,
            dim=config.stage_dim(stage),
            grid=config.stage_grid(stage),
            prefix_tokens=0,
            heads=config.heads[stage],
            mlp_dim=config.stage_mlp_dim(stage),
            readout="mean",
            window=config.window,
        )

    def parts(self) -> list[Part]:
        """Patch embedding, blocks, mergings (part of the block that follows), classifier."""
        config = self.config
        rows, columns = config.stage_grid(0)
        patch = linear_macs(rows * columns, config.channels * config.patch_size**2, config.dim)
        parts = [Part("patch embedding", "patch", patch, 0)]
        for number, block in enumerate(self.blocks, start=1):
            if str(number) in self.merges:
                merge = self.merges[str(number)]
                assert isinstance(merge, PatchMerging)
                parts.append(Part(f"merging before block {number}", "merge", merge.macs(), number))
            assert isinstance(block, SwinBlock)
            parts += block_parts(number, block.macs())
        parts.append(Part("classifier", "classifier", self.head.macs(), 0))
        return parts
