"""A mistake in what is loaded: one sentence that names the file and says what is wrong."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.complaints import CONFIG, WEIGHTS, complaint
from tests.models.foreign import make

LAYER = "vit.encoder.layer.1"
State = dict[str, Tensor]


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    """A folder with a good checkpoint of transformers."""
    make("vit").save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


def _edit_weights(folder: Path, change: Callable[[State], object]) -> None:
    state = load_file(folder / WEIGHTS)
    change(state)
    save_file(state, folder / WEIGHTS)


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated in the length": lambda data: data[:5],
    "truncated in the header": lambda data: data[:200],
    "truncated in the data": lambda data: data[:-1],
    "too long": lambda data: data + b"\0",
    "random": lambda data: random.Random(0).randbytes(len(data)),
    "a header of 4 GiB": lambda data: (2**32).to_bytes(8, "little") + data[8:],
    "a web page": lambda _: b"<!doctype html><html><body>Not found</body></html>",
}


@pytest.mark.parametrize("damage", BYTES)
def test_damaged_safetensors(vit: Path, damage: str) -> None:
    (vit / WEIGHTS).write_bytes(BYTES[damage]((vit / WEIGHTS).read_bytes()))
    assert str(vit / WEIGHTS) in complaint(vit)
    assert str(vit / WEIGHTS) in complaint(vit / WEIGHTS)


@pytest.mark.parametrize("damage", BYTES)
def test_damaged_pickle(vit: Path, damage: str) -> None:
    path = vit.parent / "weights.pth"
    torch.save(load_file(vit / WEIGHTS), path)
    path.write_bytes(BYTES[damage](path.read_bytes()))
    if damage != "too long":  # a zip file may have anything behind it
        assert str(path) in complaint(path)


class Attack:
    """Unpickling it writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_pickle_that_wants_to_run_code_does_not(tmp_path: Path, legacy: bool, nested: bool) -> None:
    path, target = tmp_path / "weights.pth", tmp_path / "owned"
    value: Any = {"state_dict": {"x": Attack(target)}} if nested else Attack(target)
    torch.save(value, path, _use_new_zipfile_serialization=not legacy)
    assert str(path) in complaint(path)
    path.write_bytes(pickle.dumps(value, protocol=2))
    assert str(path) in complaint(path)
    assert not target.exists()
    pickle.loads(path.read_bytes())
    assert target.exists()  # so the attack was a real one


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1, 2], "list"),
        (torch.zeros(2), "Tensor"),
        ({"vit.layernorm.weight": 3}, "'vit.layernorm.weight' is a int"),
        ({0: torch.zeros(2)}, "key 0"),
        ({}, "no tensors"),
    ],
    ids=str,
)
def test_pickle_of_something_else(tmp_path: Path, value: object, words: str) -> None:
    torch.save(value, tmp_path / "weights.pth")
    message = complaint(tmp_path / "weights.pth")
    assert str(tmp_path / "weights.pth") in message
    assert words in message


def test_missing_files(vit: Path) -> None:
    (vit / WEIGHTS).rename(vit.parent / "kept")
    assert f"{vit} holds no weights" in complaint(vit)
    (vit / CONFIG).unlink()
    assert f"{vit} has no config.json" in complaint(vit)


def test_integer_weights_are_not_taken_for_weights(vit: Path) -> None:
    _edit_weights(
        vit, lambda state: state.update({f"{LAYER}.output.dense.weight": torch.ones(32, 48, dtype=torch.int8)})
    )
    message = complaint(vit)
    assert f"'{LAYER}.output.dense.weight'" in message
    assert "int8" in message


def test_shard_that_is_not_there(tmp_path: Path) -> None:
    make("vit").save_pretrained(tmp_path, max_shard_size="20KB")
    lost = sorted(tmp_path.glob("model-*.safetensors"))[1]
    lost.rename(tmp_path / "elsewhere")
    assert repr(lost.name) in complaint(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(lost.name, "../elsewhere"))
    assert "'../elsewhere' is not in the folder" in complaint(tmp_path)
    index.write_text("{}")
    assert f"{index}: key 'weight_map' is missing" in complaint(tmp_path)


NAMES = [
    ("vit-bas", "did you mean vit-base"),
    ("swin-tny", "did you mean swin-tiny"),
    ("zzz", "choose one of"),
    ("x" * 5000, "choose one of"),
    ("nobody/" + "x" * 5000, "is no local file or folder"),
    ("a\0b", "Unknown model"),
    ("no/such/folder", "no/such/folder does not exist"),
    ("./missing", "./missing does not exist"),
    ("weights.safetensors", "weights.safetensors does not exist"),
    ("some/weights.pth", "some/weights.pth does not exist"),
    ("nobody/nothing", "'nobody/nothing' is no local file or folder"),
    ("no body/nothing", "'no body/nothing' is no local file or folder"),
]


@pytest.mark.parametrize(("name", "words"), NAMES)
def test_unknown_name(name: str, words: str) -> None:
    assert words in complaint(name)


def test_file_of_an_unknown_kind(tmp_path: Path) -> None:
    (tmp_path / "weights.h5").write_bytes(b"x")
    assert str(tmp_path / "weights.h5") in complaint(tmp_path / "weights.h5")


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"num_classes": -1}, "num_classes"),
    ({"image_size": 33}, "image_size 33 is not a multiple of patch_size 8"),
    ({"image_size": (32, 33)}, "image_size 33"),
    ({"image_size": 0}, "image_size"),
    ({"image_size": -8}, "image_size"),
]


@pytest.mark.parametrize(("options", "words"), ARGUMENTS, ids=str)
def test_impossible_argument(vit: Path, options: dict[str, Any], words: str) -> None:
    assert words in complaint("test-vit", **options)
    assert words in complaint(vit, **options)
