"""Parity with timm: outputs that timm computed, stored beside its weights (tools/make_timm_fixtures.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from maqee.models import load_backbone
from maqee.models.convert import convert_state
from maqee.models.convert.hints import Hints
from maqee.models.load import check_state, on_meta
from maqee.tensors import read_tensors
from tests.helpers import max_difference

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("name", ["deit_distilled", "dinov2", "swin"])
def test_outputs_equal_timms(name: str) -> None:
    model = load_backbone(FIXTURES / f"timm_{name}.safetensors", image_size=32).eval()
    stored = read_tensors(FIXTURES / f"timm_{name}_output.safetensors")
    with torch.no_grad():
        logits = model(stored["images"])
    assert logits.abs().max() > 0.1
    assert max_difference(logits, stored["logits"]) <= 1e-4


@pytest.mark.parametrize(
    ("name", "dim", "depth", "heads", "readout"),
    [
        ("vit_base_patch16_224", 768, 12, 12, "class"),
        ("deit_base_distilled_patch16_224", 768, 12, 12, "class+distillation"),
        ("vit_small_patch14_dinov2", 384, 12, 6, "class+mean"),
        ("swin_base_patch4_window7_224", 128, 24, (4, 8, 16, 32), None),
    ],
)
def test_published_models_of_timm_fit(name: str, dim: int, depth: int, heads: object, readout: str | None) -> None:
    """Names and shapes of the real models, without their weights."""
    shapes = json.loads((FIXTURES / "timm_shapes.json").read_text())["models"][name]
    state = {key: torch.empty(shape, device="meta") for key, shape in shapes.items()}
    converted = convert_state(state, Hints(), name)
    check_state(on_meta(converted.config), converted.state, name, converted.name_in_file)
    config = converted.config
    assert (config.dim, config.depth, config.heads) == (dim, depth, heads)
    assert getattr(config, "readout", None) == readout
