"""What has a kernel, and what is said of what has none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from maqee.models.layers import Attention, TokenDepthwise
from maqee.quant.coded import GridModule
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.quant.layer import QuantLayer
from tests.runtime.kernels.makers import Case, make_attend, make_layer

pytest.importorskip("triton", reason="Triton is not installed on this machine")

from maqee.runtime.kernels.fitness import cuts_patches, store_depthwise, store_layer, store_operands
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.swapper import Swapper

STEP = torch.tensor(0.1)
UNIFORM = UniformGrid(4, STEP, torch.tensor(7.0))


def with_input(grid: Grid | None) -> QuantLayer:
    layer = make_layer(Case(4, 4, 7), 10, 6)
    layer.set_input(None if grid is None else GridModule(grid))
    return layer


def without_weights() -> QuantLayer:
    layer = make_layer(Case(4, 4, 7), 10, 6)
    layer.set_bits(None)
    return layer


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Linear(3, 3), "is not quantized"),
        (without_weights(), "has float weights"),
        (with_input(None), "has a float input"),
        (with_input(TwinGrid(4, STEP, 4 * STEP, signed=True)), "has an input with a twin grid"),
        (with_input(UniformGrid(4, STEP.repeat(10), torch.zeros(10))), "has an input with a grid for each channel"),
        (
            with_input(UniformGrid(4, STEP, torch.tensor(0.5))),
            "has an input with a zero point that is no small integer",
        ),
        (with_input(UniformGrid(4, STEP, torch.tensor(4e6))), None),
        (with_input(UniformGrid(4, STEP, torch.tensor(7.0))), None),
    ],
    ids=["plain", "weights", "input", "twin", "channels", "fraction", "far", "fits"],
)
def test_layers(layer: nn.Module, reason: str | None) -> None:
    found = store_layer(layer)
    assert isinstance(found, StoredWeights) if reason is None else found == reason


def operands(**other: Grid) -> dict[str, Grid]:
    usual: dict[str, Grid] = {"q": UNIFORM, "k": UNIFORM, "p": LogSqrt2Grid(4, STEP), "v": UNIFORM}
    return usual | other


def test_attention_products() -> None:
    assert not isinstance(store_operands(make_attend(4, operands())), str)
    without = operands()
    del without["p"]
    assert store_operands(make_attend(4, without)) == "has a float operand p"
    twin = TwinGrid(4, STEP, 4 * STEP, signed=True)
    assert store_operands(make_attend(4, operands(k=twin))) == "has an operand k with a twin grid"
    assert store_operands(make_attend(4, operands(p=twin))) == "has probabilities with a twin grid"
    far = UniformGrid(4, STEP, torch.tensor(9000.0))
    assert store_operands(make_attend(4, operands(v=far))) == "has an operand v that is far from zero"
    assert store_operands(nn.Identity()) == "is not quantized"


def test_convolutions() -> None:
    assert cuts_patches(nn.Conv2d(3, 8, 4, stride=4))
    assert not cuts_patches(nn.Conv2d(3, 8, 4, stride=2))
    assert not cuts_patches(nn.Conv2d(3, 8, 4, stride=4, padding=1))
    assert not cuts_patches(nn.Conv2d(4, 8, 4, stride=4, groups=2))
    assert store_depthwise(TokenDepthwise(4)) == "is not quantized"


def test_attention_between_float_layers_is_simulated() -> None:
    """A kernel from codes to codes is of no use where a layer beside it neither makes nor reads them."""
    attention = Attention(16, 2)
    attention.attend = make_attend(4, operands())  # type: ignore[assignment]
    swapper = Swapper()
    assert swapper.swap(attention, "attention") is attention
    assert [tuple(line) for line in swapper.lines] == [
        ("attention.attend", "simulated: the layers around it do not make or read codes")
    ]


def test_a_swapped_network_shares_what_was_not_swapped() -> None:
    """The network that was given stays as it is."""
    layer = make_layer(Case(4, 4, 7), 10, 6)
    network = nn.Sequential(nn.LayerNorm(10), layer)
    swapped = Swapper().swap(network, "network")
    assert network[1] is layer
    assert isinstance(swapped, nn.Sequential)
    assert swapped[0] is network[0]
    assert not isinstance(swapped[1], QuantLayer)
    x: Tensor = torch.randn(2, 10)
    assert swapped[0](x).shape == (2, 10)
