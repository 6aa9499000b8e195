"""Round-to-nearest: every range is from the smallest to the largest number that the calibration showed."""

from __future__ import annotations

import torch
from torch import Tensor

from maqee.models import load_backbone
from maqee.quant import Bits, QuantSettings, quantize
from maqee.quant.attend import QuantAttend
from maqee.quant.grids import UniformGrid, grid_from_range
from maqee.quant.layer import QuantLayer
from maqee.quant.ranges import minmax_grid
from tests.helpers import randomize

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_ranges_are_those_of_what_the_quantized_layers_before_deliver() -> None:
    """A second run over the calibration images meets every grid's ends exactly."""
    quantized = quantize(randomize(load_backbone("test-swin")), IMAGES, "rtn", QuantSettings(patch=Bits(4, 4)))
    seen: list[str] = []

    def check(grid: object, x: Tensor) -> None:
        assert isinstance(grid, UniformGrid)
        expected = grid_from_range(x.min(), x.max(), 4)
        torch.testing.assert_close((grid.scale, grid.zero), (expected.scale, expected.zero), rtol=1e-5, atol=0)

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        assert layer.input is not None
        check(layer.input.grid, x)
        seen.append(layer.name)

    def on_operand(attend: QuantAttend, operand: str, x: Tensor) -> None:
        check(attend.all_grids()[operand].grid, x)
        seen.append(f"{attend.name}.{operand}")

    with quantized.observing(on_layer, on_operand):
        quantized.run_everything(IMAGES)
    assert len(seen) == len(quantized.layers) + 4 * len(quantized.attends)


def test_weights_are_rounded_row_by_row_at_every_width() -> None:
    model = randomize(load_backbone("test-vit"))
    quantized, weights = quantize(model, IMAGES, "rtn", QuantSettings(widths=(2, 8))), dict(model.named_parameters())
    for name, layer in quantized.layers.items():
        rows = weights[f"{name}.weight"].detach()
        for bits in (2, 4, 8):
            layer.set_bits(bits)
            state = layer.state()
            assert state is not None
            torch.testing.assert_close(state.values(), minmax_grid(rows, bits)(rows))
            assert ((state.values() - rows).abs() <= 0.5001 * state.scale).all()
            assert state.group is None
