"""Register tokens: in the sequence and its cost, never in a position or an answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maqee.exits import EarlyExitModel, add_exits, heads
from maqee.models import ViT, ViTConfig, load_backbone, presets, save_backbone
from maqee.models.load import build_backbone, on_meta
from maqee.training.optimizer import has_decay
from tests.helpers import count_head_macs, max_difference, randomize
from tests.models.foreign import TOLERANCE, assert_parity, images, make, watch_theirs
from tests.models.timm_modules import VisionTransformer

SIZES = [(48, 48), (16, 16), (48, 32), (24, 56)]


def load_vit(source: object, **options: object) -> ViT:
    model = load_backbone(source, **options)  # type: ignore[arg-type]
    assert isinstance(model, ViT)
    return model.eval()


def miniature(registers: int = 3) -> ViTConfig:
    config = presets["test-dinov2"]
    assert isinstance(config, ViTConfig)
    return replace(config, registers=registers)


def test_configuration_of_a_converted_model() -> None:
    config = load_vit(make("dinov2-registers")).config
    assert (config.registers, config.placed_tokens, config.prefix_tokens) == (3, 1, 4)
    assert config.tokens == 1 + 3 + 16
    assert (config.readout, config.position_resize) == ("class+mean", "antialias")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_other_sizes_agree_with_transformers(size: tuple[int, int]) -> None:
    theirs = make("dinov2-registers")
    assert_parity(load_vit(theirs, image_size=size), theirs, images(*size))
    assert_parity(load_vit(theirs), theirs, images(*size))


def test_published_shape_agrees_with_transformers() -> None:
    """Four registers, heads of 64, patches of 14; the bare model with its prefix in the file."""
    shape = {"hidden_size": 128, "num_attention_heads": 2, "patch_size": 14, "image_size": 70}
    theirs = make("dinov2-registers", **shape, num_register_tokens=4, layer_norm_eps=1e-6)
    assert_parity(load_vit(theirs), theirs, images(70))
    expected, _ = watch_theirs(theirs.dinov2_with_registers, images(70))
    ours = load_vit(theirs.dinov2_with_registers)
    tokens = expected.last_hidden_state
    features = torch.cat([tokens[:, 0], tokens[:, 5:].mean(dim=1)], dim=-1)
    assert max_difference(ours(images(70)), features) <= TOLERANCE


def test_folder_of_ours(tmp_path: Path) -> None:
    ours = load_vit(make("dinov2-registers"))
    save_backbone(ours, tmp_path)
    again = load_vit(tmp_path)
    assert again.config == ours.config
    assert torch.equal(again(images(32)), ours(images(32)))
    assert torch.equal(again(images(48, 24)), ours(images(48, 24)))


def test_registers_cost_as_any_token() -> None:
    """Blocks by hand: 1 + 4 + 37 x 37 tokens of width 384."""
    config = presets["dinov2-small"]
    assert isinstance(config, ViTConfig)
    parts = {part.name: part.macs for part in on_meta(replace(config, registers=4)).parts()}
    layers = [parts[f"block 1 {layer}"] for layer in ("qkv", "projection", "fc1", "fc2")]
    assert layers == [share * 1374 * 384**2 for share in (3, 1, 4, 4)]
    assert parts["block 1 attention"] == 2 * 1374**2 * 384
    assert parts["patch embedding"] == 1369 * 3 * 14**2 * 384


def test_new_registers_are_learned_without_decay() -> None:
    model = build_backbone(miniature())
    assert isinstance(model, ViT)
    assert model.embedding.register_tokens is not None
    assert model.embedding.register_tokens.any()
    assert not has_decay("embedding.register_tokens", model.embedding.register_tokens)


def _with_other_registers(config: ViTConfig) -> list[torch.Tensor]:
    """Tokens after the embedding for two values of the registers."""
    model = randomize(build_backbone(config))
    assert isinstance(model, ViT)
    before = model.embedding(images(32))
    assert model.embedding.register_tokens is not None
    with torch.no_grad():
        model.embedding.register_tokens.add_(1.0)
    return [before, model.embedding(images(32))]


@pytest.mark.parametrize("two", [False, True], ids=["class", "class and distillation"])
def test_registers_stand_between_special_tokens_and_patches(two: bool) -> None:
    config = replace(miniature(), distillation_token=two)
    before, after = _with_other_registers(config)
    changed = [index for index in range(config.tokens) if not torch.equal(before[:, index], after[:, index])]
    assert changed == [1 + two + number for number in range(3)]


READ_OUT = [kind for kind in heads.names() if not any(other in kind for other in ("detection", "segformer", "test-"))]


@pytest.mark.parametrize("kind", READ_OUT)
def test_heads_fit_and_say_what_they_cost(kind: str) -> None:
    shape = build_backbone(miniature()).token_shape(2)
    said, counted = count_head_macs(kind, shape, 10)
    assert said == counted


@pytest.mark.parametrize("readout", ["class", "class+mean", "mean", "class+distillation"])
@pytest.mark.parametrize("kind", ["local-3x3", "global-s2", "mlp", "cnn-add", "resmlp"])
def test_heads_do_not_read_registers(kind: str, readout: str) -> None:
    """Heads that read tokens one by one give the same answer whatever the registers hold."""
    config = replace(miniature(), readout=readout, distillation_token=readout == "class+distillation")  # type: ignore[arg-type]
    shape = build_backbone(config).token_shape(2)
    head = randomize(heads[kind](shape, 10), std=0.4)
    tokens = torch.randn(2, shape.tokens, shape.dim, generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, config.placed_tokens : config.prefix_tokens] += 1
    answer = head(tokens)
    assert answer.isfinite().all()
    assert torch.equal(head(other), answer)
    other[:, 0] += 1
    assert torch.equal(head(other), answer) == (kind == "resmlp" or (kind == "mlp" and readout == "mean"))


def test_exits_round_trip(tmp_path: Path) -> None:
    model = add_exits(load_backbone(make("dinov2-registers")), "lgvit").eval()
    model.save(tmp_path)
    again = EarlyExitModel.load(tmp_path).eval()
    for one, other in zip(again.forward_all(images(32)).outputs, model.forward_all(images(32)).outputs, strict=True):
        assert torch.equal(one, other)


def test_detector_with_registers() -> None:
    theirs = make("dinov2-registers")
    ours = load_vit(theirs, num_classes=3, image_size=(32, 48), detection_tokens=6)
    assert ours(images(32, 48)).shape == (2, 6, 3 + 1 + 4)
    assert ours.config.tokens == 1 + 3 + 24 + 6
    assert ours.embedding.position.shape[1] == 1 + 24 + 6


@pytest.mark.parametrize("rule", ["plain", "antialias", "offset"])
def test_positions_between_blocks_are_resized_behind_the_registers(rule: str, tmp_path: Path) -> None:
    """A YOLOS with registers does not exist yet; nothing stands in its way."""
    config = presets["test-yolos"]
    assert isinstance(config, ViTConfig)
    model = build_backbone(replace(config, registers=2, position_resize=rule))  # type: ignore[arg-type]
    assert isinstance(model, ViT)
    assert model.mid_position is not None
    save_backbone(model, tmp_path)
    larger = load_vit(tmp_path, image_size=(64, 48))
    assert larger.mid_position is not None
    assert larger(images(64, 48)).isfinite().all()
    assert torch.equal(larger.mid_position[:, :, :3], model.mid_position[:, :, :3])
    assert torch.equal(larger.mid_position[:, :, -5:], model.mid_position[:, :, -5:])


def test_a_detector_of_a_model_that_reads_the_mean() -> None:
    ours = load_vit(VisionTransformer(global_pool="avg"), num_classes=3, detection_tokens=6)
    assert not ours.config.pooled_norm
    assert ours(images(32)).shape == (2, 6, 3 + 1 + 4)
