"""The backbones themselves: published sizes, shapes of every block, LayerScale folding, new classifiers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from maqee.errors import MaqeeError
from maqee.models import Backbone, SwinConfig, ViT, ViTConfig, fold_layer_scale, load_backbone, presets, save_backbone
from maqee.models.layers import DropPath
from maqee.models.load import build_backbone, on_meta
from maqee.models.vit import LayerScale
from tests.helpers import max_difference, randomize
from tests.models.foreign import images, watch_ours

PUBLISHED = {
    "vit-tiny": 5_717_416,
    "vit-small": 22_050_664,
    "vit-base": 86_567_656,
    "vit-large": 304_326_632,
    "deit-base": 86_567_656,
    "deit-base-distilled": 87_338_192,
    "swin-tiny": 28_288_354,
    "swin-small": 49_606_258,
    "swin-base": 87_768_224,
}
MINIATURES = ["test-vit", "test-deit", "test-dinov2", "test-swin"]


def _random(kind: str) -> Backbone:
    model = randomize(load_backbone(kind), std=0.4)
    assert isinstance(model, Backbone)
    return model


@pytest.mark.parametrize("preset", PUBLISHED)
def test_parameter_counts_are_the_published_ones(preset: str) -> None:
    model = on_meta(presets[preset])
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[preset]


@pytest.mark.parametrize("preset", presets.names())
def test_every_preset_can_be_built_and_costed(preset: str) -> None:
    model = on_meta(presets[preset])
    parts = model.parts()
    assert {part.block for part in parts} == set(range(model.depth + 1))
    assert all(part.macs > 0 for part in parts)
    assert len({part.name for part in parts}) == len(parts)


@pytest.mark.parametrize("preset", [*MINIATURES, "vit-digits"])
def test_miniatures_run_and_know_their_shapes(preset: str) -> None:
    model = load_backbone(preset).eval()
    config = model.config
    logits, blocks = watch_ours(model, images(*config.image_size, channels=config.channels))
    assert logits.shape == (2, config.num_classes)
    assert logits.isfinite().all()
    for number, tokens in enumerate(blocks, start=1):
        shape = model.token_shape(number)
        assert shape.block == number
        assert tokens.shape == (2, shape.tokens, shape.dim)
        assert shape.tokens == shape.prefix_tokens + shape.grid[0] * shape.grid[1]
    assert len(model.preprocessing.mean) == len(model.preprocessing.std) == config.channels


@pytest.mark.parametrize("preset", MINIATURES)
def test_every_parameter_is_trained(preset: str) -> None:
    model = load_backbone(preset)
    model(images(32)).square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


_SIDES = st.integers(1, 4)


@settings(max_examples=15)
@given(
    rows=_SIDES,
    columns=_SIDES,
    patch=st.integers(1, 4),
    depth=st.integers(1, 3),
    two=st.booleans(),
    registers=st.integers(0, 3),
)
def test_vit_costs_what_it_multiplies(
    rows: int, columns: int, patch: int, depth: int, two: bool, registers: int
) -> None:
    size = (rows * patch, columns * patch)
    config = ViTConfig(image_size=size, patch_size=patch, dim=8, depth=depth, heads=2, mlp_dim=12, num_classes=3)
    config = replace(config, registers=registers, pre_norm=two)
    _assert_cost(replace(config, distillation_token=two, readout="class+distillation" if two else "class"))


@settings(max_examples=15)
@given(height=st.integers(4, 24), width=st.integers(4, 24), patch=st.integers(1, 3), window=st.integers(1, 5))
def test_swin_costs_what_it_multiplies(height: int, width: int, patch: int, window: int) -> None:
    """Padded windows cost what they cost; a grid smaller than the window shrinks it."""
    shape: dict[str, Any] = {"dim": 4, "depths": (1, 2), "heads": (1, 2), "num_classes": 3}
    _assert_cost(SwinConfig(image_size=(height, width), patch_size=patch, window=window, **shape))


def _assert_cost(config: ViTConfig | SwinConfig) -> None:
    model = on_meta(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, config.channels, *config.image_size, device="meta"))
    assert counter.get_total_flops() == 2 * sum(part.macs for part in model.parts())


def test_folding_layer_scale_keeps_the_function() -> None:
    model = _random("test-dinov2")
    assert isinstance(model, ViT)
    before, blocks = watch_ours(model, images(32))
    folded = fold_layer_scale(model)
    assert folded is model
    after, folded_blocks = watch_ours(folded, images(32))
    assert max_difference(before, after) < 1e-5
    for one, other in zip(blocks, folded_blocks, strict=True):
        assert max_difference(one, other) < 1e-5
    assert not any(isinstance(module, LayerScale) for module in folded.modules())
    assert not folded.config.layer_scale
    plain = build_backbone(folded.config)  # the configuration tells the truth: a plain model takes the weights
    plain.load_state_dict(folded.state_dict())
    assert torch.equal(plain(images(32)), after)


def test_folding_twice_or_a_plain_model_changes_nothing() -> None:
    for kind in ("test-dinov2", "test-vit"):
        model = _random(kind)
        assert isinstance(model, ViT)
        once = {name: tensor.clone() for name, tensor in fold_layer_scale(model).state_dict().items()}
        twice = fold_layer_scale(model).state_dict()
        assert once.keys() == twice.keys()
        assert all(torch.equal(tensor, twice[name]) for name, tensor in once.items())


@pytest.mark.parametrize("preset", MINIATURES)
@pytest.mark.parametrize("classes", [3, 10, 0])
def test_new_number_of_classes_remakes_the_head_only(preset: str, classes: int, tmp_path: Path) -> None:
    model = _random(preset)
    save_backbone(model, tmp_path)
    changed = load_backbone(tmp_path, num_classes=classes)
    before, after = model.state_dict(), changed.state_dict()
    for name, tensor in before.items():
        if not name.startswith("head.") or classes == 10:  # ten it had
            assert torch.equal(tensor, after[name]), name
        elif classes == 0:
            assert name not in after
        else:
            assert after[name].shape[0] == classes
            assert bool(after[name].any()) == name.endswith("weight")  # fresh: random weights, zero bias
    assert changed.config == replace(model.config, num_classes=classes)
    width = changed.token_shape(changed.depth).dim * (2 if preset == "test-dinov2" else 1)
    assert changed(images(32)).shape == (2, classes or width)


def test_swin_tells_which_image_size_it_wants() -> None:
    model = load_backbone("test-swin")
    with pytest.raises(MaqeeError, match="built for 32x32 images, not 48x32: load it with image_size set"):
        model(images(48, 32))
    assert load_backbone("test-swin", image_size=(48, 32))(images(48, 32)).shape == (2, 10)


BAD_CONFIGS: list[tuple[Any, dict[str, Any], str]] = [
    (ViTConfig, {"dim": 30, "heads": 4}, "dim 30 is not a multiple of heads 4"),
    (ViTConfig, {"image_size": (225, 224)}, "image_size 225"),
    (ViTConfig, {"image_size": (0, 224)}, "image_size"),
    (ViTConfig, {"depth": 0}, "depth"),
    (ViTConfig, {"mlp_dim": 3.5}, "mlp_dim must be a whole number"),
    (ViTConfig, {"num_classes": -1}, "num_classes"),
    (ViTConfig, {"pooled_norm": True}, "pooled_norm=True needs readout 'mean'"),
    (ViTConfig, {"registers": 2.5}, "registers must be a whole number"),
    (SwinConfig, {"depths": (2, 2)}, "one head count a stage"),
    (SwinConfig, {"depths": (), "heads": ()}, "one head count a stage"),
    (SwinConfig, {"heads": (3, 6, 12, 25)}, "width of stage 4 768 is not a multiple of heads 25"),
    (SwinConfig, {"heads": (0, 6, 12, 24)}, "heads of stage 1"),
    (SwinConfig, {"depths": (2, 0, 6, 2)}, "depth of stage 2"),
    (SwinConfig, {"window": 0}, "window"),
    (SwinConfig, {"mlp_ratio": 0.0}, "mlp_ratio"),
    (SwinConfig, {"image_size": (224, -4)}, "image_size"),
    (SwinConfig, {"image_size": (10**6, 224)}, "image_size"),
]


@pytest.mark.parametrize(("kind", "values", "words"), BAD_CONFIGS)
def test_impossible_shape(kind: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(MaqeeError, match=words):
        kind(**values)


@given(dim=st.integers(1, 200), hidden=st.integers(1, 800))
def test_mlp_width_survives_the_ratio(dim: int, hidden: int) -> None:
    """Files hold the width, the configuration a ratio: rounding must not lose a channel."""
    config = SwinConfig(dim=dim, depths=(1,), heads=(1,), mlp_ratio=hidden / dim)
    assert config.stage_mlp_dim(0) == hidden


def test_dropped_paths_are_for_training_only() -> None:
    model = _random("test-vit")
    before = model(images(32))
    for block in model.blocks:
        assert isinstance(block.drop_path, DropPath)
        block.drop_path.rate = 0.5
    assert torch.equal(model(images(32)), before)
    assert not torch.equal(model.train()(images(32)), before)


@given(rate=st.sampled_from([0.1, 0.25, 0.5]))
def test_dropped_paths_keep_the_mean(rate: float) -> None:
    """A sample's branch is dropped whole or scaled up to make good for the dropped ones."""
    torch.manual_seed(0)
    kept = DropPath(rate).train()(torch.ones(4000, 2))
    assert torch.equal(kept[:, 0], kept[:, 1])
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("preset", "read"),
    [("test-vit", 1), ("test-deit", 2), ("test-dinov2", None), ("test-swin", None), ("test-yolos", 5)],
)
def test_the_last_norm_sees_what_is_read(preset: str, read: int | None) -> None:
    """A norm is by token: those that no classifier looks at need none, and the answer is the same."""
    model = _random(preset).eval()
    tokens = torch.randn(2, model.token_shape(model.depth).tokens, model.token_shape(model.depth).dim)
    seen: list[int] = []
    with torch.no_grad():
        expected = model.head(model.norm(tokens))
        model.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
        assert torch.equal(model.finish(tokens), expected)
    assert seen == [read or tokens.shape[1]]
