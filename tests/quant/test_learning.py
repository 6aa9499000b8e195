"""Training quantized models: gradients by hand, the same function before and after, other widths fitted afresh."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel
from maqee.quant.grids import UniformGrid, learnable, straight_through
from maqee.quant.learner import GAIN_RATE, LearningGrid
from maqee.quant.learning import finish_learning, start_learning
from maqee.quant.ranges import REPQ_QUANTILES, quantile_grid
from tests.helpers import max_difference, set_weights
from tests.quant.makers import pictures, quantized

pytestmark = pytest.mark.trains


def outputs(model: QuantizedModel) -> Tensor:
    assert isinstance(model.model, EarlyExitModel)
    with torch.no_grad():
        return torch.stack(model.model.eval().forward_all(pictures()).outputs)


class Recorded:
    """What went into and came out of every layer and attention product in one pass."""

    def __init__(self, model: QuantizedModel) -> None:
        self.modules: dict[str, nn.Module] = {**model.layers, **model.attends}
        self.calls: dict[str, tuple[Any, Tensor]] = {}
        hooks = [module.register_forward_hook(self.keeper(name)) for name, module in self.modules.items()]
        outputs(model)
        for hook in hooks:
            hook.remove()

    def keeper(self, name: str) -> Any:
        def keep(_module: nn.Module, given: Any, output: Tensor) -> None:
            self.calls[name] = given, output

        return keep

    def check_again(self) -> None:
        """The same inputs must give the same outputs.

        Layers are asked one by one: through the whole network a difference in the last place can move a number over
        the edge between two codes, and grow.
        """
        with torch.no_grad():
            for name, module in self.modules.items():
                given, output = self.calls[name]
                assert max_difference(module(*given), output) < 1e-5, name


def train(model: QuantizedModel, steps: int = 3, lr: float = 0.01) -> None:
    assert isinstance(model.model, EarlyExitModel)
    network = model.model.requires_grad_(True)
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.stack(network.forward_all(pictures()).outputs).square().mean().backward()
        optimizer.step()


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_by_hand() -> None:
    """Step 0.5, zero point 2, codes 0..7: numbers from -1 to 2.5.

    x = 0.6 is 1.2 steps, rounded to 1: the step's gradient is 1 - 1.2. x = -9 is clipped to -2 steps, x = 9 to 5.
    """
    scale = torch.tensor(0.5, requires_grad=True)
    for value, slope, step_slope in ((0.6, 1.0, -0.2), (-0.3, 1.0, -0.4), (-9.0, 0.0, -2.0), (9.0, 0.0, 5.0)):
        x = torch.tensor(value, requires_grad=True)
        y = learnable(UniformGrid(3, scale, torch.tensor(2.0)), x)
        found = torch.autograd.grad(y, (x, scale))
        assert float(found[0]) == slope
        assert float(found[1]) == pytest.approx(step_slope, abs=1e-5)


@settings(max_examples=15)
@given(bits=st.integers(2, 5), step=st.floats(0.05, 2.0), seed=st.integers(0, 999))
def test_gradients_by_differences(bits: int, step: float, seed: int) -> None:
    """With the rounding error (in steps) held fixed, what is left is smooth, and differences give its gradient."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(30, generator=generator)
    zero, top = torch.tensor(float(2 ** (bits - 1) - 1)), 2**bits - 1
    held = (torch.round(x / step) - x / step).double()

    def smooth(x: Tensor, scale: float) -> Tensor:
        return ((x / scale + held + zero).clamp(0, top) - zero) * scale

    scale = torch.tensor(step, requires_grad=True)
    leaf = x.clone().requires_grad_(True)
    y = learnable(UniformGrid(bits, scale, zero), leaf)
    weight = torch.randn(30, generator=generator)
    by_x, by_scale = torch.autograd.grad((weight * y).sum(), (leaf, scale))
    small, values = 1e-6, x.double()
    slope_x = weight * (smooth(values + small, step) - smooth(values - small, step)) / (2 * small)
    slope_scale = weight * (smooth(values, step + small) - smooth(values, step - small)) / (2 * small)
    code = torch.round(x / step) + zero
    inner = (code != 0) & (code != top)  # at the ends of the grid the clamp has a corner
    torch.testing.assert_close(by_x[inner].double(), slope_x[inner], rtol=1e-4, atol=1e-4)
    per_entry = torch.stack(
        [
            torch.autograd.grad(learnable(UniformGrid(bits, s := scale.detach().requires_grad_(True), zero), v), s)[0]
            for v in x
        ]
    )
    torch.testing.assert_close((weight * per_entry).sum(), by_scale, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close((weight * per_entry)[inner].double(), slope_scale[inner], rtol=1e-3, atol=1e-3)


def test_values_are_those_of_the_grid() -> None:
    x, grid = torch.randn(500), UniformGrid(4, torch.tensor(0.3), torch.tensor(5.0))
    assert torch.equal(learnable(grid, x), grid(x))
    assert torch.equal(straight_through(grid, x), grid(x))


def test_a_gain_learns_in_proportion() -> None:
    """The step is scale x exp(10 gain): d/d gain = 10 step x d/d step."""
    module = LearningGrid(UniformGrid(4, torch.tensor(0.3), torch.tensor(5.0)), gain=())
    assert module.gain is not None
    x = torch.randn(40)
    (by_gain,) = torch.autograd.grad(module(x).sum(), module.gain)
    scale = torch.tensor(0.3, requires_grad=True)
    (by_scale,) = torch.autograd.grad(learnable(UniformGrid(4, scale, torch.tensor(5.0)), x).sum(), scale)
    assert float(by_gain) == pytest.approx(GAIN_RATE * 0.3 * float(by_scale), rel=1e-4)


# --- start and finish ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rtn", "repq", "erq", "mptq"])
@pytest.mark.parametrize("learn_steps", [True, False])
def test_start_and_finish_change_nothing(method: str, learn_steps: bool) -> None:
    model = quantized(method=method, exits="lgvit", widths=(3, 5))
    set_weights(model, (3, 4, 5, 4))
    before = Recorded(model)
    codes = {name: layer.state().codes for name, layer in model.layers.items()}  # type: ignore[union-attr]
    start_learning(model, learn_steps)
    assert all(layer.learning for layer in model.layers.values())
    before.check_again()
    finish_learning(model)
    assert not any(layer.learning for layer in model.layers.values())
    assert all(layer.trained for layer in model.layers.values())
    assert model.bit_settings.block_weights == (3, 4, 5, 4)
    for name, layer in model.layers.items():
        assert torch.equal(layer.state().codes, codes[name]), name  # type: ignore[union-attr]
    before.check_again()


@pytest.mark.parametrize("method", ["repq", "erq", "mptq"])
def test_codes_compute_what_was_learnt(method: str) -> None:
    model = quantized(method=method, exits="mlp")
    before = outputs(model)
    start_learning(model)
    train(model)
    assert max_difference(outputs(model), before) > 1e-3
    learnt = Recorded(model)
    finish_learning(model)
    learnt.check_again()
    assert not any(isinstance(module, LearningGrid) for module in model.model.modules())


def scales_of(model: QuantizedModel) -> dict[str, Tensor]:
    return {
        name: value.clone()
        for name, value in model.model.state_dict().items()
        if name.endswith((".4.scale", "input.scale")) or ".attend.fitted." in name
    }


def test_steps_stay_if_they_are_not_to_learn() -> None:
    model = quantized(method="repq", exits="mlp")
    before = scales_of(model)
    start_learning(model, learn_steps=False)
    train(model)
    finish_learning(model)
    after = scales_of(model)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_steps_of_uniform_grids_learn() -> None:
    model = quantized(method="repq", exits="mlp")
    before = scales_of(model)
    start_learning(model)
    train(model, lr=0.1)
    finish_learning(model)
    after = scales_of(model)
    moved = {name for name, value in before.items() if not torch.equal(after[name], value)}
    assert {name for name in before if "input" in name} <= moved
    assert any("states" in name for name in moved)
    assert not any(".attend.fitted.4.p." in name for name in moved)  # logarithmic
    assert all((value > 0).all() for value in after.values())


def test_other_widths_are_rounded_from_what_was_learnt() -> None:
    model = quantized(method="erq", exits="mlp", widths=(3, 6))
    start_learning(model)
    train(model)
    finish_learning(model)
    for name, layer in model.layers.items():
        rows = layer.rows.detach()
        for bits in set(model.widths(name)) - {4}:
            layer.set_bits(bits)
            state = layer.state()
            assert state is not None
            assert state.group is None
            torch.testing.assert_close(state.values(), quantile_grid(rows, bits, REPQ_QUANTILES)(rows))
            assert torch.equal(state.bias, layer.inner.bias)  # type: ignore[arg-type]


def test_training_again_goes_on_from_the_latent_weights() -> None:
    """The second time, latent weights are not replaced by the numbers of the codes: small changes must add up."""
    model = quantized(method="repq", exits="mlp")
    start_learning(model)
    train(model, steps=1)
    finish_learning(model)
    layer = next(iter(model.layers.values()))
    latent, before = layer.inner.weight.detach().clone(), Recorded(model)
    start_learning(model)
    assert torch.equal(layer.inner.weight, latent)
    before.check_again()
