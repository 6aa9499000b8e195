"""YOLOS of ours computes what that of transformers computes, block by block, and a plain ViT can become one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models import ViT, load_backbone, presets, save_backbone
from maqee.models.config import ViTConfig
from maqee.models.load import on_meta
from maqee.models.positions import spread_over
from tests.helpers import check_every_tensor_matters, max_difference, randomize
from tests.models.foreign import TOLERANCE, images, make, watch_ours

_SHAPE: dict[str, Any] = {
    "image_size": [32, 48],
    "patch_size": 8,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 48,
    "num_detection_tokens": 5,
    "num_labels": 7,
}


def make_yolos(**changes: Any) -> nn.Module:
    model = transformers.YolosForObjectDetection(transformers.YolosConfig(**(_SHAPE | changes)))
    return randomize(model, std=0.4)


def load_yolos(source: Any, **options: Any) -> ViT:
    model = load_backbone(source, **options)
    assert isinstance(model, ViT)
    return model.eval()


@torch.no_grad()
def assert_same(ours: ViT, theirs: nn.Module, pixels: Tensor) -> None:
    """Logits, boxes and every block's own output, before the positions between blocks are added."""
    seen: list[Tensor] = []
    layers = [module for module in theirs.modules() if type(module).__name__ == "YolosLayer"]
    hooks = [layer.register_forward_hook(lambda _m, _i, output: seen.append(output)) for layer in layers]
    expected = theirs(pixels)
    for hook in hooks:
        hook.remove()
    output, blocks = watch_ours(ours, pixels)
    assert len(blocks) == len(seen) > 0
    for number, (own, other) in enumerate(zip(blocks, seen, strict=True), start=1):
        assert max_difference(own, other) <= TOLERANCE, f"block {number}"
    assert max_difference(output[..., :-4], expected.logits) <= TOLERANCE
    assert max_difference(output[..., -4:], expected.pred_boxes) <= TOLERANCE
    assert max_difference(ours(pixels), output) <= TOLERANCE


CHANGES: dict[str, dict[str, Any]] = {
    "mid positions": {},
    "no mid positions": {"use_mid_position_embeddings": False},
    "no bias": {"qkv_bias": False},
    "one channel": {"num_channels": 1},
    "large epsilon": {"layer_norm_eps": 0.1},
}


@pytest.mark.parametrize("changes", CHANGES)
def test_output_and_every_block_agree(changes: str) -> None:
    theirs = make_yolos(**CHANGES[changes])
    assert_same(load_yolos(theirs), theirs, images(32, 48, channels=CHANGES[changes].get("num_channels", 3)))


@pytest.mark.parametrize(("dim", "heads", "mid"), [(192, 3, False), (768, 12, True)], ids=["tiny", "base"])
def test_published_widths_agree(dim: int, heads: int, mid: bool) -> None:
    shape = {"hidden_size": dim, "num_attention_heads": heads, "intermediate_size": 4 * dim, "num_labels": 91}
    rest = {"num_hidden_layers": 4, "patch_size": 16, "num_detection_tokens": 100, "layer_norm_eps": 1e-6}
    theirs = randomize(make_yolos(**shape, **rest, use_mid_position_embeddings=mid), std=0.05)
    ours = load_yolos(theirs)
    preset = presets["yolos-tiny" if dim == 192 else "yolos-base"]
    assert isinstance(preset, ViTConfig)
    for name in ("dim", "heads", "mlp_dim", "detection_tokens", "mid_position", "num_classes", "readout"):
        assert getattr(ours.config, name) == getattr(preset, name), name
    assert_same(ours, theirs, images(32, 48))


@pytest.mark.parametrize("size", [(48, 48), (16, 24), (64, 32)], ids=str)
@pytest.mark.parametrize("mid", [True, False], ids=["mid", "plain"])
def test_loading_at_another_size(size: tuple[int, int], mid: bool) -> None:
    theirs = make_yolos(use_mid_position_embeddings=mid)
    assert_same(load_yolos(theirs, image_size=size), theirs, images(*size))


def test_feeding_another_size_needs_no_loading_without_mid_positions() -> None:
    theirs = make_yolos(use_mid_position_embeddings=False)
    assert_same(load_yolos(theirs), theirs, images(48, 32))


def test_feeding_another_size_is_refused_with_mid_positions() -> None:
    with pytest.raises(MaqeeError, match=r"32x48.*image_size"):
        load_yolos(make_yolos())(images(48, 48))


@pytest.mark.slow
def test_every_tensor_takes_part() -> None:
    theirs = make_yolos(num_hidden_layers=3)
    # A key's bias cancels in the softmax.
    check_every_tensor_matters(theirs, _everything, lambda name: name.endswith("key.bias"), 100 * TOLERANCE)


def _everything(theirs: nn.Module) -> Tensor:
    output, blocks = watch_ours(load_yolos(theirs), images(32, 48))
    return torch.cat([tensor.flatten() for tensor in (output, *blocks)])


def test_folder_of_transformers_and_of_ours(tmp_path: Path) -> None:
    theirs: Any = make_yolos()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_yolos(tmp_path / "theirs")
    assert_same(ours, theirs, images(32, 48))
    save_backbone(ours, tmp_path / "ours")
    assert_same(load_yolos(tmp_path / "ours"), theirs, images(32, 48))


def test_other_classes_get_new_heads_and_the_rest_stays() -> None:
    theirs = make_yolos()
    ours = load_yolos(theirs, num_classes=2)
    assert ours(images(32, 48)).shape == (2, 5, 2 + 1 + 4)
    expected = load_yolos(theirs).state_dict()
    for name, tensor in ours.state_dict().items():
        if not name.startswith("head."):
            assert torch.equal(tensor, expected[name]), name


def test_without_heads_the_tokens_come_out() -> None:
    theirs: Any = transformers.YolosModel(transformers.YolosConfig(**_SHAPE))
    expected = theirs.eval()(images(32, 48)).last_hidden_state[:, -5:]
    assert max_difference(load_yolos(theirs)(images(32, 48)), expected) <= TOLERANCE


DAMAGE = {
    "bbox_predictor.layers.1.weight": "missing",
    "class_labels_classifier.layers.2.weight": "missing",
    "vit.encoder.layer.2.layernorm_before.bias": "missing",
    "vit.embeddings.position_embeddings": "missing",
}


@pytest.mark.parametrize("key", DAMAGE)
def test_a_lost_tensor_is_named_as_the_file_spells_it(key: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    theirs: Any = make_yolos()
    theirs.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    del state[key]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(MaqeeError, match=rf"model.safetensors: key '{key}' is missing"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("kind", ["vit", "deit-distilled", "dinov2", "dinov2-bare"])
def test_a_plain_vit_becomes_a_detector(kind: str) -> None:
    theirs = make(kind)
    plain, ours = load_yolos(theirs), load_yolos(theirs, num_classes=3, image_size=(32, 48), detection_tokens=6)
    assert ours(images(32, 48)).shape == (2, 6, 3 + 1 + 4)
    assert ours.preprocessing.resize is None
    for number in range(plain.depth):
        for name, tensor in plain.blocks[number].state_dict().items():
            assert torch.equal(tensor, ours.blocks[number].state_dict()[name])
    # the six slots lie on a grid of 2 x 3, as coarse patches would
    patches = ours.embedding.position[:, ours.config.prefix_tokens : -6]
    assert torch.equal(ours.embedding.position[:, -6:], spread_over(patches, (4, 6), 6))
    assert torch.equal(spread_over(patches, (4, 6), 24), patches)
    assert ours.embedding.detection_tokens is not None
    blank = plain.embedding.patch(torch.zeros(1, 3, plain.config.patch_size, plain.config.patch_size)).view(1, 1, -1)
    assert torch.equal(ours.embedding.detection_tokens, blank.expand(1, 6, -1))  # patches of the mean colour
    # and their boxes begin at the same places, whatever the image shows
    centres = [[(column + 0.5) / 3, (row + 0.5) / 2] for row in range(2) for column in range(3)]
    assert max_difference(ours(images(32, 48))[0, :, -4:-2], torch.tensor(centres)) < 1e-5


WRONG = {
    "Swin": (("test-swin", 5), "Swin"),
    "none": (("test-vit", 0), "at least 1"),
    "another number": (("test-yolos", 6), "5 detection tokens"),
}


@pytest.mark.parametrize("case", WRONG)
def test_impossible_detection_tokens(case: str) -> None:
    (source, number), words = WRONG[case]
    with pytest.raises(MaqeeError, match=words):
        load_backbone(source, detection_tokens=number)


@pytest.mark.parametrize("values", [{"detection_tokens": 3}, {"readout": "detection"}], ids=str)
def test_readout_and_tokens_go_together(values: dict[str, Any]) -> None:
    with pytest.raises(MaqeeError, match="detection_tokens"):
        ViTConfig(**values)


def test_configs_written_before_detection_existed_are_read(tmp_path: Path) -> None:
    import json

    save_backbone(load_backbone("test-vit"), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["backbone"]["detection_tokens"], values["backbone"]["mid_position"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert load_backbone(tmp_path).config == presets["test-vit"]


def test_cost_of_yolos_base() -> None:
    """Blocks by hand: 1 + 50 x 84 + 100 tokens of width 768."""
    parts = {part.name: part.macs for part in on_meta(presets["yolos-base"]).parts()}
    layers = [parts[f"block 1 {layer}"] for layer in ("qkv", "projection", "fc1", "fc2")]
    assert layers == [share * 4301 * 768**2 for share in (3, 1, 4, 4)]
    assert parts["block 1 attention"] == 2 * 4301**2 * 768
    assert parts["classifier"] == 100 * (2 * 2 * 768**2 + 768 * (92 + 4))


def test_class_names_do_not_count_no_object() -> None:
    names = {number: f"thing {number}" for number in range(6, -1, -1)}
    assert load_yolos(make_yolos(id2label=names)).classes == tuple(f"thing {number}" for number in range(7))
