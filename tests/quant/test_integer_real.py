"""Real weights and real images, where they are beside the checkout; the benchmark takes a thousand images."""

from __future__ import annotations

from pathlib import Path

from maqee.bench.integers import LAYER_TOLERANCE, bench_integers


def test_vit_tiny_on_a_few_images(shared_weights: Path, shared_data: Path) -> None:
    weights = shared_weights / "vit_tiny_patch16_224_augreg_in1k_fp16.safetensors"
    result = bench_integers(
        weights, "imagenet-tar", data_root=shared_data, images=2, resize=248, calibration=2, layer_images=1, show=False
    )
    assert result.comparison.agreement == 1.0
    assert result.comparison.only_ties()
    assert result.comparison.worst_layer <= LAYER_TOLERANCE
    assert result.to_json()["images"] == 2
