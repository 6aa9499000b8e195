"""Images to the stream: patches projected, set among the special tokens, positions added.

With codes it is two kernels: pixels to codes in the order of the patches, and the product, which adds each patch's
position and writes it to its place. Special tokens are the same in every image: a copy of a few rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from maqee.models.vit import Embedding
from maqee.runtime.kernels.linear import Linear
from maqee.runtime.kernels.passing import Places, in_half
from maqee.runtime.kernels.patch_codes import PatchCoder
from maqee.runtime.kernels.rounding import store_rounded
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.tuning import Config, tuned

Grid = tuple[int, int]  # rows, columns


@triton.jit
def _place_rows(  # type: ignore[no-untyped-def]
    patches, table, out, rows, outputs,
    PATCHES: tl.constexpr, TOKENS: tl.constexpr, FRONT: tl.constexpr, COMPILED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (m < rows)[:, None] & (n < outputs)[None, :]
    token = FRONT + m % PATCHES
    y = tl.load(patches + m.to(tl.int64)[:, None] * outputs + n[None, :], mask=inside, other=0.0)
    y += tl.load(table + token[:, None] * outputs + n[None, :], mask=inside, other=0.0)
    place = (m // PATCHES).to(tl.int64) * TOKENS + token
    store_rounded(out + place[:, None] * outputs + n[None, :], y, inside, COMPILED)


def place_rows(patches: Tensor, places: Places, tokens: Tensor) -> None:
    """Float patches (images * patches, dim) to their places among the tokens (images, tokens, dim), positions added."""
    (rows, outputs), device = patches.shape, patches.device

    def launch(config: Config) -> None:
        _place_rows[(-(-rows // config.block_m), -(-outputs // config.block_n))](
            patches, places.table, tokens, rows, outputs,
            PATCHES=places.patches, TOKENS=len(places.table), FRONT=places.front, COMPILED=device.type != "cpu",
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, num_warps=config.warps,
        )  # fmt: skip

    sizes = [(8, 128, 4), (4, 256, 4), (16, 128, 4), (4, 128, 2)]
    candidates = [Config(tall, wide, 0, warps, 1, 0) for tall, wide, warps in sizes]
    tuned(f"places {outputs} {tokens.dtype}", candidates, launch, device, rows)


class KernelEmbedding(nn.Module):
    """The embedding of a plain vision transformer.

    Args:
        embedding: the module in whose place this is.
        patch: its projection, for those whose input has no codes.
        weights: the projection on codes; None where it has none.
        half_tokens: whether tokens travel in float16.
    """

    def __init__(
        self, embedding: Embedding, patch: nn.Module, weights: StoredWeights | None, half_tokens: bool
    ) -> None:
        super().__init__()
        self.embedding, self.patch, self.half_tokens = embedding, patch, half_tokens
        self.norm = embedding.norm
        self.coder = None if weights is None else PatchCoder(weights, (embedding.patch.kernel_size[0],) * 2)
        self.multiply = None if weights is None else Linear(weights)
        self._tables: dict[Grid, tuple[Places, Tensor]] = {}

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, tokens, dim); any size that is a multiple of the patch."""
        places, others = self._table(self.embedding.grid_of(images))
        tokens = torch.empty(len(images), *others.shape, device=images.device, dtype=others.dtype)
        if self.coder is not None and self.multiply is not None:
            self.multiply.place(self.coder(images), places, tokens)
        else:
            picture = self.patch(images)  # (batch, dim, rows, columns), the numbers of a patch side by side
            place_rows(picture.permute(0, 2, 3, 1).reshape(-1, others.shape[1]).float(), places, tokens)
        front, behind = places.front, places.front + places.patches
        tokens[:, :front] = others[:front]
        tokens[:, behind:] = others[behind:]
        if isinstance(self.norm, nn.Identity):
            return tokens
        tokens = self.norm(tokens)
        return in_half(tokens) if self.half_tokens else tokens

    def _table(self, grid: Grid) -> tuple[Places, Tensor]:
        """Where patches stand, and all other tokens in the type that tokens have here; kept for every image size."""
        if grid not in self._tables:
            embedding, count = self.embedding, grid[0] * grid[1]
            nothing = torch.zeros(1, count, embedding.position.shape[-1], device=embedding.position.device)
            table = embedding.among_others(nothing, grid)[0].contiguous()
            registers = 0 if embedding.register_tokens is None else embedding.register_tokens.shape[1]
            rounded = self.half_tokens and isinstance(self.norm, nn.Identity)  # a norm is computed in float32
            places = Places(table, embedding.placed_tokens + registers, count)
            self._tables[grid] = places, in_half(table) if rounded else table
        return self._tables[grid]
