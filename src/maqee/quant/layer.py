"""The quantized layer that takes the place of a linear layer or a convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models.layers import TokenDepthwise, as_picture
from maqee.quant.coded import FittedWidth, GridModule, WeightState
from maqee.quant.learner import LearningGrid
from maqee.quant.sums import BYTE, EXECUTED, IN_BYTES, SHORT, SIMULATED, tensor_cores
from maqee.quant.terms import is_quick, multiply_terms, operand_terms, weight_terms


class QuantLayer(nn.Module):
    """A linear layer or convolution with quantized input and weights.

    It keeps the float weights it was made from ("latent"), and a `WeightState` for every pair of widths that was
    fitted, so that changing the widths is a look-up. Without a state or with `enabled` off it computes in float.

    With input and weights quantized it adds up products of codes and multiplies the sums by the scales:
    in float32 (simulated), or in int32 with `executing` on.

    Attributes:
        name: the layer's name in the model.
        bits: width of the weights in use; None is float.
        input_bits: width of the input in use; None is float.
        fitted: what was fitted, by the width of the input.
        folded: whether the float weights hold what a method moved into them for the input's width. Off, they are those
            of the model that came in, and what was moved is kept with each width.
        learner: while training, what rounds the latent weights anew at every pass, with straight-through gradients.
        learning_input: while training, the grid of the input.
        trained: whether the latent weights are those of a training, from which the states were made.
        observer: called with the layer and its input before anything else; methods fit layers with it.
    """

    def __init__(self, inner: nn.Linear | nn.Conv2d, name: str, input_bits: int | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.name = name
        self.fitted = nn.ModuleDict()
        self.bits: int | None = None
        self.input_bits: int | None = None
        self.begin_width(input_bits)
        self.folded = True
        self.norm: tuple[nn.LayerNorm, ...] = ()  # in a tuple: no part of this module
        self.enabled = True
        self.learner: LearningGrid | None = None
        self.learning_input: LearningGrid | None = None
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
    def learning(self) -> bool:
        """Whether the layer trains."""
        return self.learner is not None

    @property
    def width(self) -> FittedWidth:
        """What goes with the input's width in use."""
        found = self.fitted[str(self.input_bits)]
        assert isinstance(found, FittedWidth)
        return found

    @property
    def input(self) -> GridModule | None:
        """The grid of the input in use."""
        return self.width.input

    @property
    def states(self) -> nn.ModuleDict:
        """Weights by their width, for the input's width in use."""
        return self.width.states

    @property
    def rows(self) -> Tensor:
        """Latent weights as (out, in), for the input's width in use."""
        rows = self.inner.weight.flatten(1)
        ratio = None if self.folded else self.width.ratio
        return rows if ratio is None else rows * ratio

    @property
    def float_bias(self) -> Tensor | None:
        """The bias that goes with the latent weights."""
        moved = None if self.folded else self.width.bias
        return self.inner.bias if moved is None else moved

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

    def set_input(self, grid: GridModule | None) -> None:
        """Give the input in use a grid."""
        self.width.input = grid

    def set_bits(self, bits: int | None) -> None:
        """Use weights of another width that was fitted; None is float."""
        if bits is not None:
            self.check_fitted(bits, self.input_bits)
        self.bits = bits

    def begin_width(self, bits: int | None) -> None:
        """Make room for what is fitted at a width of the input, and use it."""
        self.fitted[str(bits)] = FittedWidth()
        self.input_bits, self.bits = bits, None

    def note_moved(self, ratio: Tensor) -> None:
        """Remember what was moved from norm and input into the float weights, which hold it already."""
        width = self.width
        bias = self.inner.bias
        width.ratio, width.bias = ratio.clone(), None if bias is None else bias.detach().clone()
        norm = self.norm[0]
        width.norm = torch.stack([norm.weight.detach(), norm.bias.detach()])

    def switch(self, bits: int | None, input_bits: int | None) -> None:
        """Use another pair of widths that was fitted: a look-up, and the norm in front is the one that goes with it."""
        self.check_fitted(bits, input_bits)
        self.bits = bits
        if input_bits != self.input_bits:
            self.input_bits = input_bits
            self.use_norm()

    @torch.no_grad()
    def use_norm(self) -> None:
        """Give the norm in front of the layer the numbers that go with the input's width in use."""
        if (moved := self.width.norm) is not None:
            self.norm[0].weight.copy_(moved[0])
            self.norm[0].bias.copy_(moved[1])

    @torch.no_grad()
    def settle(self) -> None:
        """Keep nothing but the widths in use."""
        weight, bias = self._float_weights()
        self.inner.weight = nn.Parameter(weight.detach().clone())
        self.inner.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.folded = True
        width = self.width
        width.norm = width.ratio = width.bias = None
        width.states = nn.ModuleDict({name: state for name, state in width.states.items() if name == str(self.bits)})
        self.fitted = nn.ModuleDict({str(self.input_bits): width})

    def check_fitted(self, bits: int | None, input_bits: int | None) -> None:
        """Complain if nothing was fitted at these widths."""
        if str(input_bits) not in self.fitted:
            kept = ", ".join(sorted(self.fitted))
            raise MaqeeError(f"{self.name} has no input at {input_bits} bits (fitted: {kept}): fit it with that width.")
        width = self.fitted[str(input_bits)]
        assert isinstance(width, FittedWidth)
        if bits is not None and str(bits) not in width.states:
            kept = ", ".join(sorted(width.states)) or "none"
            raise MaqeeError(f"{self.name} has no weights at {bits} bits (fitted: {kept}): fit it with that width.")

    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        """What the inner layer computes, on quantized numbers."""
        if self.observer is not None:
            self.observer(self, x)
        if not self.enabled:
            return self.apply_weights(x, *self._float_weights(), *rest)
        if self.learner is not None:
            given = x if self.learning_input is None else self.learning_input(x)
            return self.apply_weights(given, *self.weights(), *rest)
        state = self.state()
        if self.input is None or state is None or not made_from_codes(self.executing, self.input):
            return self.from_values(x, *rest)
        with torch.no_grad(), tensor_cores(all_short(x, self.input, state)):
            y = self._from_codes(x, self.input, state, *rest)
        return with_gradient(y, lambda: self.from_values(x, *rest), x)

    def from_values(self, x: Tensor, *rest: Any) -> Tensor:
        """The inner layer on the numbers that the codes stand for; gradients pass."""
        weight, bias = self.weights()
        return self.apply_weights(x if self.input is None else self.input(x), weight, bias, *rest)

    def _from_codes(self, x: Tensor, given: GridModule, state: WeightState, *rest: Any) -> Tensor:
        """Sums of products of codes, times scales."""
        inner, grid = self.inner, given.grid
        sums = EXECUTED if self.executing else IN_BYTES if all_bytes(x, given, state) else SIMULATED
        weights = weight_terms(state.codes, state.scale, state.zero, state.group)
        if isinstance(inner, nn.Conv2d):
            terms = operand_terms(grid, as_picture(x, rest[0]) if isinstance(inner, TokenDepthwise) else x)
            y = multiply_terms(terms, weights, lambda a, b: sums.convolve(a, b, inner, self.name), state.bias)
        else:
            terms = operand_terms(grid, x)
            y = multiply_terms(terms, weights, lambda a, b: sums.matmul(a, b.t(), self.name), state.bias)
        if isinstance(inner, TokenDepthwise):
            return y.flatten(1, 2)
        return y.permute(0, 3, 1, 2) if isinstance(inner, nn.Conv2d) else y

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """Weights and bias in use, in the inner layer's shape."""
        if self.learner is not None:
            return self.learner(self.rows).view_as(self.inner.weight), self.inner.bias
        state = self.state()
        if state is None:
            return self._float_weights()
        return state.values().view_as(self.inner.weight), state.bias

    def _float_weights(self) -> tuple[Tensor, Tensor | None]:
        if self.folded:
            return self.inner.weight, self.inner.bias
        return self.rows.view_as(self.inner.weight), self.float_bias

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
        """The inner layer with other weights."""
        if isinstance(self.inner, TokenDepthwise):
            return self.inner.convolve(x, rest[0], weight, bias)
        if isinstance(self.inner, nn.Conv2d):
            return self.inner._conv_forward(x, weight, bias)
        return F.linear(x, weight, bias)


def made_from_codes(executing: bool, *inputs: GridModule) -> bool:
    """Whether a product is made from codes: always when executed; when simulated, if that is quick enough."""
    return executing or all(is_quick(module.grid) for module in inputs)


def all_short(x: Tensor, *operands: GridModule | WeightState) -> bool:
    """Whether a product may run on a GPU's tensor cores. Settings cannot be changed within what torch.compile makes."""
    return x.is_cuda and _reach_at_most(SHORT, *operands)


def all_bytes(x: Tensor, *operands: GridModule | WeightState) -> bool:
    """Whether a product may be one of bytes on a processor."""
    return x.device.type == "cpu" and _reach_at_most(BYTE, *operands)


def _reach_at_most(largest: int, *operands: GridModule | WeightState) -> bool:
    return not torch.compiler.is_compiling() and all(operand.reach <= largest for operand in operands)


def with_gradient(y: Tensor, from_values: Callable[[], Tensor], *inputs: Tensor) -> Tensor:
    """The result y with the gradient of the same computation on values, where one is wanted."""
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        return y
    values = from_values()
    return y + (values - values.detach())  # what is added is exactly 0
