"""The quantized attention product."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.quant.coded import GridModule
from maqee.quant.layer import all_short, made_from_codes, with_gradient
from maqee.quant.sums import EXECUTED, SIMULATED, tensor_cores
from maqee.quant.terms import multiply_terms, operand_terms

ALIGNED = 8  # numbers of two bytes that a GPU fetches at once


class QuantAttend(nn.Module):
    """softmax(q k^T / sqrt(d) + bias) v with all four operands quantized; softmax itself is float.

    Attributes:
        name: its name in the model.
        bits: width of the operands in use.
        fitted: grids of the operands, by their width.
        learners: while training, the grids of the operands.
        observer: called with the module and the operands ("q", "k", "p", "v") when they first occur.
    """

    OPERANDS = ("q", "k", "p", "v")

    def __init__(self, name: str, bits: int | None = None) -> None:
        super().__init__()
        self.name = name
        self.fitted = nn.ModuleDict()
        self.bits: int | None = None
        self.begin_width(bits)
        self.enabled = True
        self.learners: nn.ModuleDict | None = None
        self.executing = False
        self.observer: Callable[[QuantAttend, str, Tensor], None] | None = None

    @property
    def learning(self) -> bool:
        """Whether the product is part of a training."""
        return self.learners is not None

    @property
    def grids(self) -> nn.ModuleDict:
        """Grids of the operands at the width in use."""
        found = self.fitted[str(self.bits)]
        assert isinstance(found, nn.ModuleDict)
        return found

    def begin_width(self, bits: int | None) -> None:
        """Make room for what is fitted at a width, and use it."""
        self.fitted[str(bits)] = nn.ModuleDict()
        self.bits = bits

    def switch(self, bits: int | None) -> None:
        """Use another width that was fitted: a look-up."""
        self.check_fitted(bits)
        self.bits = bits

    def settle(self) -> None:
        """Keep nothing but the width in use."""
        self.fitted = nn.ModuleDict({str(self.bits): self.grids})

    def check_fitted(self, bits: int | None) -> None:
        """Complain if nothing was fitted at this width."""
        if str(bits) not in self.fitted:
            kept = ", ".join(sorted(self.fitted))
            raise MaqeeError(f"{self.name} has no grids at {bits} bits (fitted: {kept}): fit it with that width.")

    def all_grids(self) -> dict[str, GridModule]:
        """The grids of the operands."""
        return {name: grid for name, grid in self.grids.items() if isinstance(grid, GridModule)}

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """q, k, v: (batch, heads, tokens, head width); bias broadcasts to (batch, heads, tokens, tokens)."""
        return self.mix(self.probabilities(q, k, bias), v)

    def probabilities(self, q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
        """Softmax of the scores and the bias."""
        scores = self.scores(q, k)
        return torch.softmax(scores if bias is None else scores + bias, dim=-1)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """The first product, q k^T / sqrt(d)."""
        self._observe("q", q)
        self._observe("k", k)
        return self._product("q", q, "k", k.transpose(-2, -1)) * q.shape[-1] ** -0.5

    def mix(self, p: Tensor, v: Tensor) -> Tensor:
        """The second product, p v."""
        self._observe("p", p)
        self._observe("v", v)
        return self._product("p", p, "v", v)

    def _observe(self, operand: str, x: Tensor) -> None:
        if self.observer is not None:
            self.observer(self, operand, x)

    def _product(self, left: str, one: Tensor, right: str, other: Tensor) -> Tensor:
        if not self.enabled:
            return one @ other
        if self.learners is not None:
            return aligned_product(_rounded(self.learners, left, one), _rounded(self.learners, right, other))
        grids = self.all_grids()

        def from_values() -> Tensor:
            return _rounded(grids, left, one) @ _rounded(grids, right, other)

        both = {left, right} <= set(grids)
        if not both or not made_from_codes(self.executing, grids[left], grids[right]):
            return from_values()
        name, sums = f"{self.name} {left} x {right}", EXECUTED if self.executing else SIMULATED
        with torch.no_grad(), tensor_cores(all_short(one, grids[left], grids[right])):
            terms = operand_terms(grids[left].grid, one), operand_terms(grids[right].grid, other)
            y = multiply_terms(*terms, lambda a, b: sums.matmul(a, b, name))
        return with_gradient(y, from_values, one, other)


def _rounded(grids: Mapping[str, nn.Module] | nn.ModuleDict, operand: str, x: Tensor) -> Tensor:
    """An operand on its grid, if it has one."""
    return grids[operand](x) if operand in grids else x


def aligned_product(left: Tensor, right: Tensor) -> Tensor:
    """The product of (..., n, k) and (..., k, m), with rows that begin in memory where a GPU's tensor cores want them.

    197 tokens do not, and such a product takes them three times as long, forward and backward. What is filled up are
    zeros, so that the numbers stay as they are; compiled, it is written by the kernel that makes the operand.
    """
    inner, columns = right.shape[-2:]
    more = -inner % ALIGNED, -columns % ALIGNED
    if not (left.is_cuda and any(more)):
        return left @ right
    return _filled_product(left, right, *more)


def _filled_product(left: Tensor, right: Tensor, inner: int, columns: int) -> Tensor:
    """The product with so many more columns on the left and on the right, which are zeros."""
    turned = right.stride(-2) == 1  # a transposed operand keeps its order in memory
    if turned:
        right = F.pad(right.transpose(-2, -1), (0, inner, 0, columns)).transpose(-2, -1)
    else:
        right = F.pad(right, (0, columns, 0, inner))
    wanted = right.shape[-1] - columns
    return (F.pad(left, (0, inner)) @ right)[..., :wanted]
