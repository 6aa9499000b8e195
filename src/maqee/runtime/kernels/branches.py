"""Parts of a transformer as lists of kernel calls, prepared once."""

from __future__ import annotations

from torch import Tensor, nn

from maqee.models.swin import SwinBlock
from maqee.runtime.kernels.attention import MOST_TOKENS, CodedAttend
from maqee.runtime.kernels.fitness import Operands
from maqee.runtime.kernels.linear import Linear
from maqee.runtime.kernels.passing import Coded, Target, in_half
from maqee.runtime.kernels.patch_codes import PatchCoder
from maqee.runtime.kernels.rows import RowCoder
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.windows import Windows


class KernelLinear(nn.Module):
    """A linear layer on its own: float in, float out, codes between."""

    def __init__(self, weights: StoredWeights) -> None:
        super().__init__()
        self.code, self.multiply = RowCoder(weights), Linear(weights)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., inputs)."""
        y = self.multiply(self.code(x))
        assert isinstance(y, Tensor)
        return y.view(*x.shape[:-1], -1)


class KernelPatches(nn.Module):
    """A patch embedding on its own: a linear layer on patches."""

    def __init__(self, weights: StoredWeights, conv: nn.Conv2d) -> None:
        super().__init__()
        down, right = conv.kernel_size
        self.kernel_size, self.stride = (down, right), conv.stride
        self.code, self.multiply = PatchCoder(weights, (down, right)), Linear(weights)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, dim, rows, columns)."""
        y = self.multiply(self.code(images))
        assert isinstance(y, Tensor)
        down, right = self.kernel_size
        grid = images.shape[2] // down, images.shape[3] // right
        return y.view(images.shape[0], *grid, -1).permute(0, 3, 1, 2)


class KernelAttention(nn.Module):
    """Multi-head self-attention; codes from the first layer's input to the last one's.

    Args:
        qkv: its first layer.
        operands: grids of its product.
        proj: its last layer, with one group of columns.
        heads: how many.
        norm: a LayerNorm in front of it that is done with it.
        adds: whether its result is added to what comes in.
        plain: does the same without this kernel, for more tokens than it has room for; None where there never are.
        half_tokens: whether what it reads, and is added to, is float16.
        windows: which tokens see each other, and their bias; None where all do, and without one.
    """

    def __init__(
        self,
        qkv: StoredWeights,
        operands: Operands,
        proj: StoredWeights,
        heads: int,
        norm: nn.LayerNorm | None,
        adds: bool,
        plain: nn.Module | None,
        half_tokens: bool = False,
        windows: Windows | None = None,
    ) -> None:
        super().__init__()
        grids = [operands.q, operands.k, operands.v]
        self.code = RowCoder(qkv, norm)
        self.qkv = Linear(qkv, Target.plain(grids, qkv.outputs))
        width = qkv.outputs // 3 // heads
        self.attend = CodedAttend(grids, operands.p, heads, width, Target.input_of(proj), windows)
        self.proj, self.adds, self.plain = Linear(proj), adds, plain
        self.half_tokens = half_tokens

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x: (batch, tokens, dim)."""
        if self.plain is not None and (x.shape[1] > MOST_TOKENS or bias is not None):
            return self.plain(x) if bias is None else self.plain(x, bias)
        x = (in_half(x) if self.half_tokens else x).contiguous()
        mixed = self.attend(expect_codes(self.qkv(self.code(x))), x.shape[0])
        y = self.proj(expect_codes(mixed), x.view(-1, x.shape[-1]) if self.adds else None)
        assert isinstance(y, Tensor)
        return y.view_as(x)


class KernelMlp(nn.Module):
    """x + fc2(gelu(fc1(norm(x)))): three kernels, the GELU in the second one."""

    def __init__(self, norm: nn.LayerNorm, fc1: StoredWeights, fc2: StoredWeights, half_tokens: bool = False) -> None:
        super().__init__()
        self.half_tokens = half_tokens
        self.code = RowCoder(fc1, norm)
        self.fc1, self.fc2 = Linear(fc1, Target.input_of(fc2), gelu=True), Linear(fc2)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        x = (in_half(x) if self.half_tokens else x).contiguous()
        y = self.fc2(expect_codes(self.fc1(self.code(x))), x.view(-1, x.shape[-1]))
        assert isinstance(y, Tensor)
        return y.view_as(x)


class WindowHalf(nn.Module):
    """The first half of a Swin block, window attention and what it is added to, where that has no kernel."""

    def __init__(self, block: SwinBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        return x + self.block.window_attention(self.block.norm1(x))


class Added(nn.Module):
    """x + branch(norm(x)), for a branch that has no kernels."""

    def __init__(self, norm: nn.Module, branch: nn.Module) -> None:
        super().__init__()
        self.norm, self.branch = norm, branch

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        return x + self.branch(self.norm(x))


class InFloat(nn.Module):
    """A part that computes in float32, of tokens in whatever they travel in."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        y: Tensor = self.part(x.float())
        return y


class BetweenHalves(nn.Module):
    """A part that computes in float32, between tokens in float16."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        return in_half(self.part(x.float()))


def expect_codes(result: Tensor | Coded) -> Coded:
    """What a layer that puts codes out has put out."""
    assert isinstance(result, Coded)
    return result
