"""Real weights and real images, where they are beside the checkout; the benchmark takes a thousand images."""

from __future__ import annotations

from pathlib import Path

from maqee.bench.integers import LAYER_TOLERANCE, compare_integers
from maqee.io import read_json


def test_vit_tiny_on_a_few_images(shared_weights: Path, shared_data: Path, tmp_path: Path) -> None:
    weights = shared_weights / "vit_tiny_patch16_224_augreg_in1k_fp16.safetensors"
    out = tmp_path / "integers.json"
    result = compare_integers(
        weights, "imagenet-tar", shared_data, 2, resize=248, calibration=2, layer_images=1, out=out, show=False
    )
    assert result["agreement"] == 1.0
    assert result["only_ties"]
    assert result["worst_layer"] <= LAYER_TOLERANCE
    assert read_json(out)["images"] == 2
