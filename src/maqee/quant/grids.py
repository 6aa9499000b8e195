"""Number grids as plain maths: real numbers to integer codes and back.

A grid is a frozen value. Calling it rounds numbers to the nearest point of the grid ("fake quantization"); `codes` and
`values` are the two halves of that, for packing and integer execution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maqee.errors import MaqeeError

SQRT2 = math.sqrt(2.0)
NARROW = 2.0**-20  # a range this narrow, beside its distance from zero, is a constant


def check_bits(bits: int) -> int:
    """Grids exist for 2 to 8 bits."""
    if not isinstance(bits, int) or not 2 <= bits <= 8:
        raise MaqeeError(f"A grid has 2 to 8 bits, not {bits!r}.")
    return bits


@dataclass(frozen=True)
class UniformGrid:
    """Evenly spaced points: value = (code - zero) * scale, code = 0 .. 2^bits - 1.

    Attributes:
        bits: width of a code.
        scale: step, one number or a tensor that broadcasts against the input (one for each channel, say).
        zero: the code that means 0. An integer for execution on codes; the RepQ and ERQ releases leave a mean of
            integers there, which fake quantization can follow.
    """

    bits: int
    scale: Tensor
    zero: Tensor

    @property
    def top(self) -> int:
        """The largest code."""
        return 2**self.bits - 1

    def codes(self, x: Tensor) -> Tensor:
        """Codes as floating-point numbers, ready for arithmetic."""
        return _clamped((x / self.scale).round_().add_(self.zero), self.top)

    def values(self, codes: Tensor) -> Tensor:
        """Numbers the codes stand for."""
        return (codes - self.zero) * self.scale

    def covers(self, x: Tensor) -> Tensor:
        """Where a number is rounded and not clipped: there, and only there, gradients pass."""
        code = torch.round(x / self.scale) + self.zero
        return (code >= 0) & (code <= self.top)

    def __call__(self, x: Tensor) -> Tensor:
        """Nearest point of the grid."""
        return self.values(self.codes(x))


@dataclass(frozen=True)
class LogSqrt2Grid:
    """Powers of 1/sqrt(2), for probabilities: value = scale * 2^(-code / 2); what is smaller than all of them is 0.

    RepQ's grid. Code 2^bits stands for 0, beside the 2^bits powers: it never leaves the attention product.
    """

    bits: int
    scale: Tensor

    @property
    def none(self) -> int:
        """The code of 0."""
        return 2**self.bits

    def codes(self, x: Tensor) -> Tensor:
        """Codes as floating-point numbers."""
        exponent = (x / self.scale).log2_().mul_(-2).round_()  # log2(0) is -inf, which clamps to the code of 0
        return _clamped(exponent, self.none)

    def values(self, codes: Tensor) -> Tensor:
        """Numbers the codes stand for."""
        return torch.where(codes >= self.none, 0.0, self.scale * torch.exp2(-codes / 2))

    def covers(self, x: Tensor) -> Tensor:
        """Where a number is neither clipped nor set to 0."""
        exponent = torch.round(-2 * torch.log2(x / self.scale))
        return (exponent >= 0) & (exponent < self.none)

    def __call__(self, x: Tensor) -> Tensor:
        """Nearest point of the grid, in the exponent."""
        return self.values(self.codes(x))


@dataclass(frozen=True)
class TwinGrid:
    """Two uniform regions with steps of their own; one bit of the code says which.

    For activations after GELU the fine region is below zero (nothing is smaller than -0.17) and the coarse one above.
    For probabilities the fine region holds the small ones. The coarse step is the fine one times a power of two.

    Attributes:
        bits: width of a code, the region's bit included.
        fine: step of the fine region.
        coarse: step of the coarse region.
        signed: True for GELU; False for probabilities, where both regions begin at 0.
    """

    bits: int
    fine: Tensor
    coarse: Tensor
    signed: bool

    @property
    def levels(self) -> int:
        """Codes in each region."""
        return 2 ** (self.bits - 1)

    def codes(self, x: Tensor) -> Tensor:
        """Codes as floating-point numbers; those from `levels` up are in the coarse region."""
        top = self.levels - 1
        coarse = (x / self.coarse).round().clamp(min=0).clamp(max=top)
        if self.signed:
            fine = (-x / self.fine).round().clamp(min=0).clamp(max=top)
            return torch.where(x < 0, fine, coarse + self.levels)
        fine = (x / self.fine).round().clamp(min=0).clamp(max=top)
        nearer = (fine * self.fine - x).abs() <= (coarse * self.coarse - x).abs()
        return torch.where(nearer, fine, coarse + self.levels)

    def values(self, codes: Tensor) -> Tensor:
        """Numbers the codes stand for."""
        fine = -self.fine if self.signed else self.fine
        return torch.where(codes < self.levels, codes * fine, (codes - self.levels) * self.coarse)

    def covers(self, x: Tensor) -> Tensor:
        """Where a number is rounded and not clipped."""
        top = self.levels - 1
        above = (x / self.coarse).round() <= top
        return above & ((-x / self.fine).round() <= top if self.signed else x >= 0)

    def __call__(self, x: Tensor) -> Tensor:
        """Nearest point of the grid."""
        return self.values(self.codes(x))


Grid = UniformGrid | LogSqrt2Grid | TwinGrid


def _clamped(codes: Tensor, top: int | Tensor) -> Tensor:
    """Codes from 0 to the top: in two steps in a grid that trains, where the width, and so the top, is a tensor."""
    return codes.clamp(0, top) if isinstance(top, int) else codes.clamp(min=0).clamp(max=top)


def grid_from_range(low: Tensor, high: Tensor, bits: int) -> UniformGrid:
    """The asymmetric grid with one end at `low` and the other at `high`: scale = (high - low) / (2^bits - 1).

    A constant (low = high, or nearly so) gets the grid that holds it and zero.
    """
    low, high = _spread(low, high)
    scale = ((high - low) / (2 ** check_bits(bits) - 1)).clamp(min=torch.finfo(low.dtype).tiny)
    return UniformGrid(bits, scale, torch.round(-low / scale))


def symmetric_grid(largest: Tensor, bits: int) -> UniformGrid:
    """The grid from -largest to nearly +largest with zero in the middle, as two's complement has it."""
    half = 2 ** (check_bits(bits) - 1)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest)) / (half - 1 if half > 1 else 1)
    return UniformGrid(bits, scale, torch.full_like(scale, half))


def same_range(grid: Grid, bits: int) -> Grid:
    """A grid over the same numbers with another width."""
    if isinstance(grid, LogSqrt2Grid):
        return LogSqrt2Grid(check_bits(bits), grid.scale)
    if isinstance(grid, TwinGrid):
        factor = max(grid.levels - 1, 1) / max(2 ** (bits - 1) - 1, 1)
        return TwinGrid(check_bits(bits), grid.fine * factor, grid.coarse * factor, grid.signed)
    factor = grid.top / (2 ** check_bits(bits) - 1)
    return UniformGrid(bits, grid.scale * factor, torch.round(grid.zero / factor))


def straight_through(grid: Grid, x: Tensor) -> Tensor:
    """Round to the grid in single precision; gradients pass as if nothing had happened, except where x was clipped."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return grid.values(grid.codes(x.float())).to(x.dtype)
    values = x.float()
    rounded = grid.values(grid.codes(values)).detach()
    passed = torch.where(grid.covers(values.detach()), values, rounded)
    return (passed + (rounded - passed).detach()).to(x.dtype)


def learnable(grid: UniformGrid, x: Tensor) -> Tensor:
    """The same for a grid whose step learns too (learned step size quantization, Esser et al. 2020).

    The step's gradient is the rounding error in steps where x is inside, and the end of the grid where it is not.
    """
    top = torch.as_tensor(grid.top, device=grid.zero.device)
    rounded: Tensor = _LearnableRounding.apply(x, grid.scale, grid.zero, top)  # type: ignore[no-untyped-call]
    return rounded


class _LearnableRounding(torch.autograd.Function):
    """Rounding with both gradients written down, so that all a training keeps of it is what went in.

    Autograd, given the formula piece by piece, keeps many more numbers, and adds the step's gradient up from two large
    parts that nearly cancel.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero: Tensor, top: Tensor) -> Tensor:
        """Nearest point of the grid, in single precision."""
        ctx.save_for_backward(x, scale, zero, top)
        code = torch.round(x.float() / scale) + zero
        return ((_clamped(code, top) - zero) * scale).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """By x: as it is, where x is inside; by the step: see `learnable`."""
        x, scale, zero, top = ctx.saved_tensors
        steps = x.float() / scale
        code = torch.round(steps) + zero
        clamped = _clamped(code, top)
        inside = (clamped == code).float()  # numbers, not a mask: compiled for a processor, that is twice as fast
        slope = clamped - zero - steps * inside  # of the value by the step
        return (gradient * inside).to(x.dtype), (gradient.float() * slope).sum_to_size(scale.shape), None, None


def _spread(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Widen a range that is empty, but for rounding errors, until it reaches zero; all zeros get the range 0..1."""
    empty = high - low <= NARROW * torch.maximum(high.abs(), low.abs())
    wider_low = torch.where(empty, low.clamp(max=0), low)
    wider_high = torch.where(empty, high.clamp(min=0), high)
    nothing = wider_high <= wider_low
    return wider_low, torch.where(nothing, wider_high + 1, wider_high)
