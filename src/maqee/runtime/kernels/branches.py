"""Parts of a transformer as lists of kernel calls, prepared once."""

from __future__ import annotations

from torch import Tensor, nn

from maqee.runtime.kernels.attention import MOST_TOKENS, CodedAttend
from maqee.runtime.kernels.fitness import Operands
from maqee.runtime.kernels.linear import Linear
from maqee.runtime.kernels.passing import Coded, Target
from maqee.runtime.kernels.rows import RowCoder
from maqee.runtime.kernels.stored import StoredWeights


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
    """The patch embedding: patches cut out, then a linear layer."""

    def __init__(self, weights: StoredWeights, conv: nn.Conv2d) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.linear = conv.kernel_size, conv.stride, KernelLinear(weights)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, dim, rows, columns)."""
        down, right = self.kernel_size
        cut = images.unflatten(3, (-1, right)).unflatten(2, (-1, down))  # (batch, channels, rows, down, columns, right)
        patches = cut.permute(0, 2, 4, 1, 3, 5).flatten(3)  # (batch, rows, columns, inputs)
        return self.linear(patches).permute(0, 3, 1, 2)


class KernelAttention(nn.Module):
    """Multi-head self-attention; codes from the first layer's input to the last one's.

    Args:
        qkv: its first layer.
        operands: grids of its product.
        proj: its last layer, with one group of columns.
        heads: how many.
        norm: a LayerNorm in front of it that is done with it.
        adds: whether its result is added to what comes in.
        plain: does the same without this kernel, for more tokens than it has room for.
    """

    def __init__(
        self,
        qkv: StoredWeights,
        operands: Operands,
        proj: StoredWeights,
        heads: int,
        norm: nn.LayerNorm | None,
        adds: bool,
        plain: nn.Module,
    ) -> None:
        super().__init__()
        grids = [operands.q, operands.k, operands.v]
        self.code = RowCoder(qkv, norm)
        self.qkv = Linear(qkv, Target.plain(grids, qkv.outputs))
        self.attend = CodedAttend(grids, operands.p, heads, qkv.outputs // 3 // heads, Target.input_of(proj))
        self.proj, self.adds, self.plain = Linear(proj), adds, plain

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x: (batch, tokens, dim)."""
        if x.shape[1] > MOST_TOKENS or bias is not None:
            return self.plain(x) if bias is None else self.plain(x, bias)
        x = x.contiguous()
        mixed = self.attend(expect_codes(self.qkv(self.code(x))), x.shape[0])
        y = self.proj(expect_codes(mixed), x.view(-1, x.shape[-1]) if self.adds else None)
        assert isinstance(y, Tensor)
        return y.view_as(x)


class KernelMlp(nn.Module):
    """x + fc2(gelu(fc1(norm(x)))): three kernels, the GELU in the second one."""

    def __init__(self, norm: nn.LayerNorm, fc1: StoredWeights, fc2: StoredWeights) -> None:
        super().__init__()
        self.code = RowCoder(fc1, norm)
        self.fc1, self.fc2 = Linear(fc1, Target.input_of(fc2), gelu=True), Linear(fc2)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        x = x.contiguous()
        y = self.fc2(expect_codes(self.fc1(self.code(x))), x.view(-1, x.shape[-1]))
        assert isinstance(y, Tensor)
        return y.view_as(x)


class Added(nn.Module):
    """x + branch(norm(x)), for a branch that has no kernels."""

    def __init__(self, norm: nn.Module, branch: nn.Module) -> None:
        super().__init__()
        self.norm, self.branch = norm, branch

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        return x + self.branch(self.norm(x))


def expect_codes(result: Tensor | Coded) -> Coded:
    """What a layer that puts codes out has put out."""
    assert isinstance(result, Coded)
    return result
