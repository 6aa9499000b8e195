"""A mistake in a config.json, transformers' or ours: the message names that file and the key."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from maqee.models import load_backbone, save_backbone
from tests.models.complaints import CONFIG, WEIGHTS, complaint
from tests.models.foreign import make


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
    ({"backbone__readout": "mean"}, "readout"),
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


@pytest.mark.parametrize("section", ["backbone", "preprocessing"])
def test_own_config_lacks_a_key(own: Path, section: str) -> None:
    good = json.loads((own / CONFIG).read_text())
    for key in set(good[section]) - {"detection_tokens", "mid_position"}:  # which older files do not have
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
