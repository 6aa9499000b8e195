"""Steps of two groups that are whole multiples of a common one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maqee.models import load_backbone
from maqee.quant import QuantSettings, quantize
from maqee.quant.common_steps import common_steps, step_multiples
from maqee.quant.grids import UniformGrid
from maqee.quant.learning import finish_learning, start_learning
from tests.helpers import randomize

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def multiples(bits: int, *steps: tuple[float, ...]) -> list[list[int]] | None:
    found = step_multiples(bits, torch.tensor(steps))
    return None if found is None else found.tolist()


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)[:, None]


def test_by_hand() -> None:
    """0.149 is nearest to 3 halves of 0.1; 0.35 lies between 3 and 4 times 0.1, where 7 halves fit."""
    first = UniformGrid(4, column(0.1, 0.1), column(8, 8))
    moved = common_steps(first, UniformGrid(4, column(0.149, 0.35), column(8, 7)))
    assert torch.allclose(moved.scale, column(0.15, 0.35))
    assert moved.zero.tolist() == [[8.0], [7.0]]
    assert multiples(4, (0.1, 0.15), (0.1, 0.35)) == [[2, 3], [2, 7]]


def test_steps_without_a_common_one() -> None:
    assert multiples(4, (0.1, 0.1413)) is None
    assert multiples(6, (0.1, 0.2)) is None  # multiples of 6-bit codes leave the byte
    assert multiples(8, (0.1,), (0.7,)) == [[1], [1]]  # one group


def test_wide_grids_stay() -> None:
    second = UniformGrid(6, column(0.149), column(30))
    assert common_steps(UniformGrid(6, column(0.1), column(32)), second) is second


@given(
    bits=st.integers(2, 5),
    ratio=st.floats(0.2, 5.0),
    zeros=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)
def test_codes_fit_into_a_byte_and_steps_hardly_move(bits: int, ratio: float, zeros: tuple[float, float]) -> None:
    top = 2**bits - 1
    first = UniformGrid(bits, column(0.03), column(round(zeros[0] * top)))
    second = UniformGrid(bits, column(0.03 * ratio), column(round(zeros[1] * top)))
    moved = common_steps(first, second)
    multiples = step_multiples(bits, torch.cat([first.scale, moved.scale], dim=1))
    assert multiples is not None
    for grid, multiple in zip((first, moved), multiples[0].tolist(), strict=True):
        assert float(torch.maximum(grid.zero, grid.top - grid.zero)) * multiple <= 127
    if bits <= 4 and 0.4 <= zeros[0] <= 0.6 and 0.4 <= zeros[1] <= 0.6 and 0.4 < ratio < 2.5:
        assert abs(float(moved.scale / second.scale) - 1) < 0.06


@pytest.mark.parametrize("common", [True, False])
def test_erq_has_them_if_asked(common: bool) -> None:
    quantized = quantize(randomize(load_backbone("test-vit")), IMAGES, "erq", QuantSettings(common_steps=common))
    states = [layer.state() for name, layer in quantized.layers.items() if name.endswith((".qkv", ".fc1"))]
    found = [step_multiples(state.bits, state.scale) is not None for state in states if state is not None]
    assert found
    assert all(found) if common else not all(found)


def test_learning_keeps_them() -> None:
    quantized = quantize(randomize(load_backbone("test-vit")), IMAGES, "erq", QuantSettings(common_steps=True))
    layer = quantized.layers["blocks.0.mlp.fc1"]
    start_learning(quantized)
    state = layer.state()
    assert state is not None
    assert layer.learner is not None
    assert layer.learner.gain is not None
    assert layer.learner.gain.shape == (len(state.scale), 1)
    torch.nn.init.normal_(layer.learner.gain, std=0.3)
    finish_learning(quantized)
    learnt = layer.state()
    assert learnt is not None
    assert not torch.allclose(learnt.scale, state.scale, rtol=1e-3)
    assert step_multiples(learnt.bits, learnt.scale) is not None
