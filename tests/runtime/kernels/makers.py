"""Small quantized layers with every kind of grid, and how codes are compared."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule, WeightState
from maqee.quant.common_steps import common_steps
from maqee.quant.grids import Grid, UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.runtime.kernels.statements import state_rows
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights


class Case(NamedTuple):
    """Widths of a layer, the zero point of its input, and whether weights are in two groups, or in common steps."""

    weights: int
    inputs: int
    zero: int
    grouped: bool = False
    common: bool = False

    def __str__(self) -> str:
        kind = "-common" if self.common else "-grouped" if self.grouped else ""
        return f"w{self.weights}a{self.inputs}z{self.zero}{kind}"


# Narrow and wide pairs, zero points within, at the edge of and beyond the codes, sums too large for a shortcut.
CASES = [
    Case(4, 4, 7),
    Case(8, 8, 100),
    Case(2, 3, 0, grouped=True),
    Case(4, 4, 9, grouped=True),
    Case(8, 8, 31, grouped=True),
    Case(3, 7, -5),
    Case(8, 5, 40, grouped=True),
    Case(4, 4, 7, grouped=True, common=True),
]


def make_layer(case: Case, inputs: int, outputs: int, scale: float = 0.1, seed: int = 0) -> QuantLayer:
    """A layer with random codes that computes on integers."""
    generator = torch.Generator().manual_seed(seed)
    layer = QuantLayer(nn.Linear(inputs, outputs), "layer", case.inputs)
    groups = 2 if case.grouped else 1
    steps = 0.01 + 0.02 * torch.rand(outputs, groups, generator=generator)
    zero = torch.randint(0, 2**case.weights, (outputs, groups), generator=generator)
    if case.common:
        first, second = (UniformGrid(case.weights, steps[:, [i]], zero[:, [i]].float()) for i in (0, 1))
        second = common_steps(first, second)
        steps, zero = torch.cat([first.scale, second.scale], dim=1), torch.cat([first.zero, second.zero], dim=1)
    codes = torch.randint(0, 2**case.weights, (outputs, inputs), generator=generator)
    group = (torch.arange(inputs) % 5 == 2).to(torch.uint8) if case.grouped else None
    bias = 0.3 * torch.randn(outputs, generator=generator)
    layer.add_state(WeightState(case.weights, codes, steps, zero, group, bias))
    layer.set_bits(case.weights)
    layer.set_input(GridModule(UniformGrid(case.inputs, torch.tensor(scale), torch.tensor(float(case.zero)))))
    layer.executing = True
    return layer


def make_attend(bits: int, operands: dict[str, Grid]) -> QuantAttend:
    """An attention product that computes on integers."""
    attend = QuantAttend("attend", bits)
    for name, grid in operands.items():
        attend.grids[name] = GridModule(grid)
    attend.executing = True
    return attend


def codes_for(weights: StoredWeights, numbers: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the reference makes of a layer's input: stored codes (rows, width), and their sums if they are wanted."""
    codes = state_rows(numbers, weights)
    halves = [codes[:, : weights.split], codes[:, weights.split :]][: weights.groups]
    sums = torch.stack([half.sum(dim=1, dtype=torch.int32) for half in halves])
    return codes.to(torch.int8), None if weights.rests is None else sums


def assert_same_codes(stored: Tensor, numbers: Tensor, grid: StoredGrid, hair: float = 1e-4) -> None:
    """Stored codes are those of the numbers, but for numbers that lie within a hair of the middle of two."""
    steps = numbers.double() / grid.scale
    expected = (torch.round(steps) + grid.zero).clamp(0, grid.top) - grid.shift
    different = stored.double() != expected
    tied = ((steps - steps.floor()) - 0.5).abs() < hair
    assert not bool((different & ~tied).any()), f"{int((different & ~tied).sum())} codes differ"
    assert int(tied.sum()) <= 0.01 * tied.numel(), "nearly everything is tied, so that the comparison shows nothing"
