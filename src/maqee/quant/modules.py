"""Quantized layers that take the place of linear layers, convolutions and attention products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models.layers import TokenDepthwise, as_picture
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid, learnable, straight_through
from maqee.quant.sums import EXECUTED, SIMULATED
from maqee.quant.terms import is_quick, multiply_terms, operand_terms, weight_terms

KINDS: dict[str, type[UniformGrid] | type[LogSqrt2Grid] | type[TwinGrid]] = {
    "uniform": UniformGrid,
    "log-sqrt2": LogSqrt2Grid,
    "twin": TwinGrid,
}
GAIN_RATE = 10.0  # steps are multiplied by exp(10 gain), so that they learn ten times as fast as weights of size 1


class GridModule(nn.Module):
    """A grid whose numbers are buffers: they move between devices and are saved with the model.

    Attributes:
        scale: the step, of a uniform or logarithmic grid.
        gain: while training, what the step of a uniform grid learns; else None.
    """

    scale: Tensor

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.kind = next(name for name, kind in KINDS.items() if isinstance(grid, kind))
        self.settings: dict[str, Any] = {}
        for field in fields(grid):
            value = getattr(grid, field.name)
            if isinstance(value, Tensor):
                self.register_buffer(field.name, value.detach().clone().contiguous())
            else:
                self.settings[field.name] = value
        self.gain: nn.Parameter | None = None

    @property
    def grid(self) -> Grid:
        """The grid as a value."""
        values: dict[str, Any] = {**self.settings, **dict(self.named_buffers())}
        if self.gain is not None:
            values["scale"] = values["scale"] * torch.exp(GAIN_RATE * self.gain)
        return KINDS[self.kind](**values)

    @property
    def bits(self) -> int:
        """Width of a code."""
        return int(self.settings["bits"])

    def forward(self, x: Tensor) -> Tensor:
        """Round to the grid, with straight-through gradients."""
        grid = self.grid
        if self.gain is not None and isinstance(grid, UniformGrid):
            return learnable(grid, x)
        return straight_through(grid, x)


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
        self.register_buffer("zero", zero.detach().to(torch.int32))
        self.register_buffer("group", None if group is None else group.to(torch.uint8))
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        self.gain: nn.Parameter | None = None  # (out * groups,), while training

    def learned_scale(self) -> Tensor:
        """(out, groups) steps, with what was learnt so far."""
        return self.scale if self.gain is None else self.scale * torch.exp(GAIN_RATE * self.gain).view_as(self.scale)

    def grid(self) -> UniformGrid:
        """The grid of every weight: scales spread over the columns."""
        scale, zero = self.learned_scale(), self.zero.to(self.scale.dtype)
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

    With input and weights quantized it adds up products of codes and multiplies the sums by the scales:
    in float32 (simulated), or in int32 with `executing` on.

    Attributes:
        name: the layer's name in the model.
        bits: width of the weights in use; None is float.
        learning: compute weights from the latent ones with straight-through gradients, for training.
        trained: whether the latent weights are those of a training, from which the states were made.
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
        self.trained = False
        self.executing = False
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
        if bits is not None:
            self.check_fitted(bits)
        self.bits = bits

    def check_fitted(self, bits: int) -> None:
        """Complain if there are no weights at this width."""
        if str(bits) not in self.states:
            kept = ", ".join(sorted(self.states)) or "none"
            raise MaqeeError(f"{self.name} has no weights at {bits} bits (fitted: {kept}): fit it with that width.")

    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        """What the inner layer computes, on quantized numbers."""
        if self.observer is not None:
            self.observer(self, x)
        if not self.enabled:
            return self.apply_weights(x, self.inner.weight, self.inner.bias, *rest)
        state = self.state()
        if self.input is None or state is None or self.learning or not _made_from_codes(self.executing, self.input):
            return self.from_values(x, *rest)
        with torch.no_grad():
            y = self._from_codes(x, self.input.grid, state, *rest)
        return _with_gradient(y, lambda: self.from_values(x, *rest), x)

    def from_values(self, x: Tensor, *rest: Any) -> Tensor:
        """The inner layer on the numbers that the codes stand for; gradients pass."""
        weight, bias = self.weights()
        return self.apply_weights(x if self.input is None else self.input(x), weight, bias, *rest)

    def _from_codes(self, x: Tensor, grid: Grid, state: WeightState, *rest: Any) -> Tensor:
        """Sums of products of codes, times scales."""
        inner, sums = self.inner, EXECUTED if self.executing else SIMULATED
        weights = weight_terms(state.codes, state.scale, state.zero, state.group)
        if isinstance(inner, nn.Conv2d):
            terms = operand_terms(grid, as_picture(x, rest[0]) if isinstance(inner, TokenDepthwise) else x)
            y = multiply_terms(terms, weights, lambda a, b: sums.convolve(a, b, inner, self.name))
        else:
            terms = operand_terms(grid, x)
            y = multiply_terms(terms, weights, lambda a, b: sums.matmul(a, b.t(), self.name))
        y = y if state.bias is None else y + state.bias
        if isinstance(inner, TokenDepthwise):
            return y.flatten(1, 2)
        return y.permute(0, 3, 1, 2) if isinstance(inner, nn.Conv2d) else y

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """Weights and bias in use, in the inner layer's shape."""
        state = self.state()
        if state is None:
            return self.inner.weight, self.inner.bias
        if self.learning:
            return learnable(state.grid(), self.rows).view_as(self.inner.weight), self.inner.bias
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
        self.learning = False
        self.executing = False
        self.observer: Callable[[QuantAttend, str, Tensor], None] | None = None

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
        grids = self.all_grids() if self.enabled else {}

        def from_values() -> Tensor:
            return (grids[left](one) if left in grids else one) @ (grids[right](other) if right in grids else other)

        both = {left, right} <= set(grids)
        if not both or self.learning or not _made_from_codes(self.executing, grids[left], grids[right]):
            return from_values()
        name, sums = f"{self.name} {left} x {right}", EXECUTED if self.executing else SIMULATED
        with torch.no_grad():
            terms = operand_terms(grids[left].grid, one), operand_terms(grids[right].grid, other)
            y = multiply_terms(*terms, lambda a, b: sums.matmul(a, b, name))
        return _with_gradient(y, from_values, one, other)


def _made_from_codes(executing: bool, *inputs: GridModule) -> bool:
    """Whether a product is made from codes: always when executed; when simulated, if that is quick enough."""
    return executing or all(is_quick(module.grid) for module in inputs)


def _with_gradient(y: Tensor, from_values: Callable[[], Tensor], *inputs: Tensor) -> Tensor:
    """The result y with the gradient of the same computation on values, where one is wanted."""
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        return y
    values = from_values()
    return y + (values - values.detach())  # what is added is exactly 0


def rounded_state(rows: Tensor, grid: UniformGrid, group: Tensor | None, bias: Tensor | None) -> WeightState:
    """Weights (out, in) rounded to the nearest point of a grid with scales (out, groups)."""
    scale, zero = grid.scale, grid.zero
    spread = UniformGrid(grid.bits, scale, zero) if group is None else UniformGrid(
        grid.bits, scale[:, group.long()], zero[:, group.long()]
    )  # fmt: skip
    return WeightState(grid.bits, spread.codes(rows), scale, zero, group, bias)
