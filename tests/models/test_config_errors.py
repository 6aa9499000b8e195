"""A mistake in a config.json, transformers' or ours: the message names that file and the key."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from maqee.models import load_backbone, presets, save_backbone
from tests.models.complaints import CONFIG, WEIGHTS, complaint
from tests.models.foreign import make
from tests.models.test_timm_layout import write_timm_folder
from tests.models.timm_modules import VisionTransformer


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    """A folder with a good checkpoint of transformers."""
    make("vit").save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a good checkpoint of ours."""
    save_backbone(load_backbone("test-vit"), tmp_path / "own")
    return tmp_path / "own"


def _edit_config(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / CONFIG).read_text())
    for key, value in changes.items():
        place, _, name = key.rpartition("__")
        (values[place] if place else values)[name] = value
    (folder / CONFIG).write_text(json.dumps(values))


CONFIGS: dict[str, tuple[str, str]] = {
    "empty": ("", "valid JSON"),
    "truncated": ('{"image_size": 3', "valid JSON"),
    "a list": ("[1, 2]", "list"),
    "a number": ("3", "int"),
    "not text": ("\udcff\udcfe", "valid JSON"),
}


@pytest.mark.parametrize("damage", CONFIGS)
def test_damaged_config(vit: Path, damage: str) -> None:
    text, words = CONFIGS[damage]
    (vit / CONFIG).write_bytes(text.encode("utf-8", "surrogateescape"))
    message = complaint(vit)
    assert str(vit / CONFIG) in message
    assert words in message


HINTS = [
    ("hidden_act", "relu"),
    ("hidden_act", 3),
    ("hidden_act", "gelu_new"),
    ("hidden_act", "gelu_pytorch_tanh"),
    ("hidden_act", "quick_gelu"),
    ("use_swiglu_ffn", True),
    ("num_register_tokens", -1),
    ("num_register_tokens", "four"),
    ("num_attention_heads", 0),
    ("num_attention_heads", -4),
    ("num_attention_heads", "four"),
    ("num_attention_heads", [4]),
    ("layer_norm_eps", "small"),
    ("layer_norm_eps", -1),
    ("image_size", [32]),
    ("image_size", [32, "x"]),
    ("image_size", {"height": 32}),
]


@pytest.mark.parametrize(("key", "value"), HINTS)
def test_config_of_transformers_says_something_impossible(vit: Path, key: str, value: object) -> None:
    _edit_config(vit, **{key: value})
    message = complaint(vit)
    assert str(vit / CONFIG) in message
    assert key in message
    assert str(value).strip("[]") in message


ARGUMENTS = [
    ("act_layer", "relu"),
    ("act_layer", "gelu_tanh"),
    ("act_layer", "quick_gelu"),
    ("norm_layer", "rmsnorm"),
    ("mlp_layer", "SwiGLUPacked"),
    ("block_fn", "ResPostBlock"),
    ("global_pool", "map"),
    ("global_pool", "max"),
    ("pool_include_prefix", True),
]


@pytest.mark.parametrize(("key", "value"), ARGUMENTS)
def test_config_of_timm_states_another_network(tmp_path: Path, key: str, value: object) -> None:
    folder = write_timm_folder(tmp_path, VisionTransformer().state_dict(), num_heads=4, **{key: value})
    assert f"{folder / CONFIG}: {key} is {value!r}, only" in complaint(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [("vit_base_patch32_clip_quickgelu_224", "QuickGELU"), ("vit_base_patch16_rope_224", "rotary positions")],
)
def test_name_of_a_timm_architecture_states_another_network(tmp_path: Path, name: str, words: str) -> None:
    folder = write_timm_folder(tmp_path, VisionTransformer().state_dict(), num_heads=4)
    _edit_config(folder, architecture=name)
    message = complaint(folder)
    assert repr(name) in message
    assert words in message


def test_epsilon_of_some_norms_only(tmp_path: Path) -> None:
    """Transformers' Swin has norms whose epsilon no setting changes."""
    make("swin", layer_norm_eps=0.1).save_pretrained(tmp_path)
    assert "layer_norm_eps is 0.1" in complaint(tmp_path)


def test_number_of_heads_does_not_fit(vit: Path) -> None:
    _edit_config(vit, num_attention_heads=5)
    message = complaint(vit)
    assert str(vit / CONFIG) in message
    assert "dim 32 is not a multiple of heads 5" in message


OWN_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"version": 2}, "version 2 is not 1"),
    ({"version": None}, "version None is not 1"),
    ({"format": "maqee-plan"}, "'maqee-plan'"),
    ({"backbone": None}, "'backbone' is missing"),
    ({"backbone": [1]}, "'backbone' is missing"),
    ({"preprocessing": None}, "'preprocessing' is missing"),
    ({"preprocessing": {}}, "'image_size'"),
    ({"preprocessing__mean": "grey"}, "'mean'"),
    ({"preprocessing__colour": 1}, "'colour'"),
    ({"backbone__family": "resnet"}, "'family' is 'resnet'"),
    ({"backbone__colour": 1}, "'colour' is not part of a vit"),
    ({"backbone__dim": "32"}, "'dim'"),
    ({"backbone__dim": 10**12}, "dim"),
    ({"backbone__dim": 10**30}, "dim"),
    ({"backbone__depth": 10**9}, "depth"),
    ({"backbone__heads": 0}, "heads"),
    ({"backbone__heads": 3}, "heads 3"),
    ({"backbone__num_classes": -1}, "num_classes"),
    ({"backbone__num_classes": 2.5}, "'num_classes'"),
    ({"backbone__pooled_norm": True}, "pooled_norm=True needs readout 'mean'"),
    ({"backbone__registers": -1}, "registers"),
    ({"backbone__registers": 1.5}, "'registers'"),
    ({"backbone__pre_norm": 1}, "'pre_norm'"),
    ({"backbone__position_resize": "bilinear"}, "'position_resize'"),
    ({"backbone__readout": "last"}, "'readout'"),
    ({"backbone__readout": "class+distillation"}, "distillation_token"),
    ({"backbone__norm_eps": -1.0}, "norm_eps"),
    ({"backbone__norm_eps": float("nan")}, "norm_eps"),
    ({"backbone__image_size": [33, 32]}, "image_size 33"),
    ({"backbone__image_size": [0, 32]}, "image_size"),
    ({"backbone__image_size": [32]}, "'image_size"),
]


@pytest.mark.parametrize(("changes", "words"), OWN_CONFIGS, ids=[str(changes) for changes, _ in OWN_CONFIGS])
def test_own_config_says_something_impossible(own: Path, changes: dict[str, Any], words: str) -> None:
    _edit_config(own, **changes)
    message = complaint(own)
    assert str(own / CONFIG) in message
    assert words in message


# Keys that older files do not have.
NEWER = {"detection_tokens", "mid_position", "registers", "pre_norm", "pooled_norm", "position_resize"}


def test_own_config_of_an_older_version(own: Path) -> None:
    values = json.loads((own / CONFIG).read_text())
    values["backbone"] = {key: value for key, value in values["backbone"].items() if key not in NEWER}
    (own / CONFIG).write_text(json.dumps(values))
    assert load_backbone(own).config == presets["test-vit"]


@pytest.mark.parametrize("section", ["backbone", "preprocessing"])
def test_own_config_lacks_a_key(own: Path, section: str) -> None:
    good = json.loads((own / CONFIG).read_text())
    for key in set(good[section]) - NEWER:
        values = json.loads(json.dumps(good))
        del values[section][key]
        (own / CONFIG).write_text(json.dumps(values))
        message = complaint(own)
        assert str(own / CONFIG) in message
        assert repr(key) in message


def test_own_weights_of_another_shape(own: Path) -> None:
    _edit_config(own, backbone__mlp_dim=65)
    message = complaint(own)
    assert str(own / WEIGHTS) in message
    assert "'blocks.0.mlp.fc1.weight' has shape (64, 32), expected (65, 32)" in message


def test_no_memory_is_taken_for_a_model_that_does_not_fit(own: Path) -> None:
    """Built in earnest, the model of this configuration would fill 1.6 GB."""
    _edit_config(own, backbone__dim=4096, backbone__mlp_dim=4096)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "'embedding.class_token' has shape (1, 1, 32), expected (1, 1, 4096)" in complaint(own)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 300
