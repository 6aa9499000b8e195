"""A fit for many pairs of widths is what separate fits are, to the bit."""

from __future__ import annotations

import pytest
import torch

from maqee.exits import add_exits
from maqee.models import load_backbone
from maqee.quant import QuantizedModel, QuantSettings, quantize
from maqee.quant.methods import erq
from maqee.quant.places import Role
from maqee.widths import BitSettings
from tests.helpers import randomize
from tests.quant.makers import pictures

pytestmark = pytest.mark.slow

IMAGES = pictures(8)


def parts_of(quantized: QuantizedModel) -> dict[str, torch.Tensor]:
    """Everything that the widths in use give what can be switched: layers, norms and attention products."""
    found: dict[str, torch.Tensor] = {}
    for name, layer in quantized.layers.items():
        if not quantized.switches(name):
            continue
        state = layer.state()
        assert state is not None
        found |= {f"{name}.{part}": value for part, value in state.named_buffers()}
        assert layer.input is not None
        found |= {f"{name}.input.{part}": value for part, value in layer.input.named_buffers()}
        found |= {f"{name}.norm.{part}": value for norm in layer.norm for part, value in norm.named_parameters()}
    for name, attend in quantized.attends.items():
        if quantized.switches(name):
            found |= {f"{name}.{part}": value for part, value in attend.grids.named_buffers()}
    assert found
    return found


@pytest.mark.parametrize(
    ("family", "method"),
    [
        *(("test-vit", method) for method in ("rtn", "repq", "erq", "erq-2024", "mptq")),
        ("test-swin", "repq"),  # its mergings keep one width, which the others pass on
        ("test-swin", "erq"),
    ],
)
def test_many_pairs_at_once(family: str, method: str) -> None:
    model = randomize(add_exits(load_backbone(family), "mlp", positions=(2,)), std=0.2)
    switched: tuple[Role, ...] = ("block", "head", "merge")  # all that lies before a block has its width, as alone
    settings = QuantSettings(widths=(3, 4), act_widths=(3, 4, 6), switched=switched)
    together = quantize(model, IMAGES, method, settings)
    assert together.bit_settings.blocks[0].qkv == (4, 4)
    for activations in (3, 6, 4):
        alone = quantize(model, IMAGES, method, QuantSettings(widths=(3, 4), act_bits=activations, switched=switched))
        for weights in (3, 4):
            wanted = BitSettings.uniform(weights, activations, together.depth)
            together.set_widths(wanted)
            alone.set_widths(wanted)
            got, expected = parts_of(together), parts_of(alone)
            for name in expected:
                assert torch.equal(got[name], expected[name]), f"{name} at W{weights}A{activations}"


@pytest.mark.parametrize(("room", "at_once"), [(erq.ROOM, erq.AT_ONCE), (100_000, erq.AT_ONCE), (erq.ROOM, 30_000)])
@pytest.mark.parametrize("family", ["test-vit", "test-swin"])
def test_as_an_accelerator_does_it(family: str, room: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers of a shape rounded together, or as many as there is room for: nothing else comes out."""
    model = randomize(add_exits(load_backbone(family), "mlp", positions=(2,)), std=0.2)
    settings = QuantSettings(widths=(3, 4), act_widths=(3, 4, 6))
    plain = quantize(model, IMAGES, "erq", settings).model.state_dict()
    monkeypatch.setattr(erq, "_alone", lambda ready: False)
    monkeypatch.setattr(erq, "ROOM", room)
    monkeypatch.setattr(erq, "AT_ONCE", at_once)
    together = quantize(model, IMAGES, "erq", settings).model.state_dict()
    assert list(together) == list(plain)
    assert [name for name, value in plain.items() if not torch.equal(value, together[name])] == []
