"""Quantized layers that take the place of linear layers, convolutions and attention products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models.layers import TokenDepthwise
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid, straight_through

_KINDS: dict[str, type[UniformGrid] | type[LogSqrt2Grid] | type[TwinGrid]] = {
    "uniform": UniformGrid,
    "log-sqrt2": LogSqrt2Grid,
    "twin": TwinGrid,
}


class GridModule(nn.Module):
    """A grid whose numbers are buffers: they move between devices and are saved with the model."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.kind = next(name for name, kind in _KINDS.items() if isinstance(grid, kind))
        self.settings: dict[str, Any] = {}
        for field in fields(grid):
            value = getattr(grid, field.name)
            if isinstance(value, Tensor):
                self.register_buffer(field.name, value.detach().clone().contiguous())
            else:
                self.settings[field.name] = value

    @property
    def grid(self) -> Grid:
        """The grid as a value."""
        values: dict[str, Any] = {**self.settings, **dict(self.named_buffers())}
        return _KINDS[self.kind](**values)

    @property
    def bits(self) -> int:
        """Width of a code."""
        return int(self.settings["bits"])

    def forward(self, x: Tensor) -> Tensor:
        """Round to the grid, with straight-through gradients."""
        return straight_through(self.grid, x)


class WeightState(nn.Module):
    """Weights of one layer at one width: codes, scales and the bias that belongs to them.

    Args:
        bits: width of a code.
        codes: (out, in), whole numbers from 0 to 2^bits - 1.
        scale: (out, groups).
        zero: (out, groups), whole numbers.
        group: (in,) which group each input column belongs to; None when there is one group.
        bias: (out,) or None; methods that compensate errors keep another bias for each width.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor
    group: Tensor | None
    bias: Tensor | None

    def __init__(
        self, bits: int, codes: Tensor, scale: Tensor, zero: Tensor, group: Tensor | None, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("codes", codes.to(torch.uint8))
        self.register_buffer("scale", scale.detach().float().contiguous())
        self.register_buffer("zero", zero.detach().to(torch.int16))
        self.register_buffer("group", None if group is None else group.to(torch.uint8))
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())

    def grid(self) -> UniformGrid:
        """The grid of every weight: scales spread over the columns."""
        scale, zero = self.scale, self.zero.to(self.scale.dtype)
        if self.group is not None:
            columns = self.group.long()
            scale, zero = scale[:, columns], zero[:, columns]
        return UniformGrid(self.bits, scale, zero)

    def values(self) -> Tensor:
        """(out, in) weights that the codes stand for."""
        return self.grid().values(self.codes.to(self.scale.dtype))


class QuantLayer(nn.Module):
    """A linear layer or convolution with quantized input and weights.

    It keeps the float weights it was made from ("latent"), and a `WeightState` for every width that was fitted, so that
    changing the width is a look-up. Without a state or with `enabled` off it computes in float.

    Attributes:
        name: the layer's name in the model.
        bits: width of the weights in use; None is float.
        learning: compute weights from the latent ones with straight-through gradients, for training.
        observer: called with the layer and its input before anything else; methods fit layers with it.
    """

    def __init__(self, inner: nn.Linear | nn.Conv2d, name: str) -> None:
        super().__init__()
        self.inner = inner
        self.name = name
        self.input: GridModule | None = None
        self.states = nn.ModuleDict()
        self.bits: int | None = None
        self.enabled = True
        self.learning = False
        self.observer: Callable[[QuantLayer, Tensor], None] | None = None

    def __getattr__(self, name: str) -> Any:
        """What the inner layer knows (its sizes, its stride), for whoever asks the layer in its place."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    @property
    def rows(self) -> Tensor:
        """Latent weights as (out, in)."""
        return self.inner.weight.flatten(1)

    def state(self) -> WeightState | None:
        """The state in use."""
        if self.bits is None:
            return None
        found = self.states[str(self.bits)]
        assert isinstance(found, WeightState)
        return found

    def add_state(self, state: WeightState) -> None:
        """Keep the weights of one more width."""
        self.states[str(state.bits)] = state

    def set_bits(self, bits: int | None) -> None:
        """Use another width that was fitted; None is float."""
        if bits is not None and str(bits) not in self.states:
            kept = ", ".join(sorted(self.states)) or "none"
            raise MaqeeError(f"{self.name} has no weights at {bits} bits (fitted: {kept}): fit it with that width.")
        self.bits = bits

    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        """What the inner layer computes, on quantized numbers."""
        if self.observer is not None:
            self.observer(self, x)
        if not self.enabled:
            return self.apply_weights(x, self.inner.weight, self.inner.bias, *rest)
        if self.input is not None:
            x = self.input(x)
        weight, bias = self.weights()
        return self.apply_weights(x, weight, bias, *rest)

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """Weights and bias in use, in the inner layer's shape."""
        state = self.state()
        if state is None:
            return self.inner.weight, self.inner.bias
        if self.learning:
            return straight_through(state.grid(), self.rows).view_as(self.inner.weight), self.inner.bias
        return state.values().view_as(self.inner.weight), state.bias

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
        """The inner layer with other weights."""
        if isinstance(self.inner, TokenDepthwise):
            return self.inner.convolve(x, rest[0], weight, bias)
        if isinstance(self.inner, nn.Conv2d):
            return self.inner._conv_forward(x, weight, bias)
        return F.linear(x, weight, bias)


class QuantAttend(nn.Module):
    """softmax(q k^T / sqrt(d) + bias) v with all four operands quantized; softmax itself is float.

    Attributes:
        name: its name in the model.
        observer: called with the module and the operands ("q", "k", "p", "v") when they first occur.
    """

    OPERANDS = ("q", "k", "p", "v")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.grids = nn.ModuleDict()
        self.enabled = True
        self.observer: Callable[[QuantAttend, str, Tensor], None] | None = None

    def all_grids(self) -> dict[str, GridModule]:
        """The grids of the operands."""
        return {name: grid for name, grid in self.grids.items() if isinstance(grid, GridModule)}

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """q, k, v: (batch, heads, tokens, head width); bias broadcasts to (batch, heads, tokens, tokens)."""
        q, k = self._quantize("q", q), self._quantize("k", k)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if bias is not None:
            scores = scores + bias
        p = self._quantize("p", torch.softmax(scores, dim=-1))
        return p @ self._quantize("v", v)

    def _quantize(self, operand: str, x: Tensor) -> Tensor:
        if self.observer is not None:
            self.observer(self, operand, x)
        if not self.enabled or operand not in self.grids:
            return x
        return self.grids[operand](x)


def rounded_state(rows: Tensor, grid: UniformGrid, group: Tensor | None, bias: Tensor | None) -> WeightState:
    """Weights (out, in) rounded to the nearest point of a grid with scales (out, groups)."""
    scale, zero = grid.scale, grid.zero
    spread = UniformGrid(grid.bits, scale, zero) if group is None else UniformGrid(
        grid.bits, scale[:, group.long()], zero[:, group.long()]
    )  # fmt: skip
    return WeightState(grid.bits, spread.codes(rows), scale, zero, group, bias)
