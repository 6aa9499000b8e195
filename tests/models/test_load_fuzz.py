"""Damaged files, at random: loading works or says what is wrong, soon and without taking the machine's memory."""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from maqee.errors import MaqeeError
from maqee.models import SwinConfig, ViTConfig, load_backbone, save_backbone
from maqee.models.load import build_backbone
from tests.models.foreign import make
from tests.models.test_timm_layout import write_timm_folder
from tests.models.timm_modules import VisionTransformer

pytestmark = pytest.mark.slow

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_SECONDS, _MEGABYTES = 10.0, 600
_VIT: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
_SWIN: dict[str, Any] = {"embed_dim": 4, "depths": [2], "num_heads": [1], "window_size": 2, "image_size": 8}
# Values that a config file should not hold anywhere.
_STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 3, 10**6, 10**18, 10**40, 0.5, -2.0, 1e-300, 1e300, float("inf"), float("nan"),
    "", "gelu", "32", "\u0000", [], [1], [1, 2, 3], [[1, 2], [3]], [None, "x"], [10**9, 10**9], {}, {"a": 1},
    "x" * 5000,
]  # fmt: skip


def _mutate(data: bytes, rng: random.Random, head: int) -> bytes:
    """Flip bits, cut, overwrite, insert, remove or double; mostly in the first `head` bytes, where the structure is."""
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        place = rng.randrange(min(head, len(damaged)) if rng.random() < 0.85 else len(damaged)) if damaged else 0
        length = rng.choice([1, 1, 2, 4, 16])
        kind = rng.choice(["flip", "digit", "overwrite", "insert", "remove", "double", "cut"])
        if kind == "flip" and damaged:
            damaged[place] ^= 1 << rng.randrange(8)
        elif kind == "digit":  # numbers that still are numbers get furthest
            digits = [index for index, byte in enumerate(damaged[:head]) if chr(byte).isdigit()]
            if digits:
                damaged[rng.choice(digits)] = ord(rng.choice("0123456789"))
        elif kind == "overwrite":
            damaged[place : place + length] = rng.randbytes(length)
        elif kind == "insert":
            damaged[place:place] = rng.choice([rng.randbytes(length), b"9" * length, b'"', b"[", b"}", b",", b"-"])
        elif kind == "remove":
            del damaged[place : place + length]
        elif kind == "double":
            damaged[place:place] = damaged[place : place + length]
        elif rng.random() < 0.3:
            del damaged[place:]
    return bytes(damaged)


def _swap_value(values: Any, rng: random.Random) -> Any:
    """Replace, drop or add one value somewhere in a JSON tree."""
    if isinstance(values, dict) and values and rng.random() < 0.9:
        key = rng.choice(sorted(values))
        if (action := rng.random()) < 0.1:
            return {name: value for name, value in values.items() if name != key}
        if action < 0.15:
            return {**values, "strange": rng.choice(_STRANGE)}
        return {**values, key: _swap_value(values[key], rng)}
    if isinstance(values, list) and values and rng.random() < 0.5:
        place = rng.randrange(len(values))
        return [*values[:place], _swap_value(values[place], rng), *values[place + 1 :]]
    return rng.choice(_STRANGE)


def _attack(source: Path, target: Path, damage: Callable[[bytes, random.Random], bytes], rounds: int) -> dict[str, int]:
    """Load `source` with `target` damaged in `rounds` ways; anything but success or MaqeeError is a failure."""
    good = target.read_bytes()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counts = {"loaded": 0, "refused": 0}
    for seed in range(rounds):
        target.write_bytes(damage(good, random.Random(seed)))
        start = time.perf_counter()
        try:
            load_backbone(source)
            counts["loaded"] += 1
        except MaqeeError:
            counts["refused"] += 1
        except BaseException as error:
            pytest.fail(f"seed {seed}: {error!r}")
        assert time.perf_counter() - start < _SECONDS, f"seed {seed}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
        assert grown < _MEGABYTES, f"seed {seed}: {grown:.0f} MB"
    target.write_bytes(good)
    load_backbone(source)  # the file was good before
    return counts


@pytest.fixture(params=["vit", "swin", "timm", "own-vit", "own-swin"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tiny good checkpoint."""
    if request.param == "own-vit":
        vit = ViTConfig(image_size=(8, 8), patch_size=4, dim=8, depth=2, heads=2, mlp_dim=8, num_classes=2)
        save_backbone(build_backbone(vit), tmp_path)
    elif request.param == "own-swin":
        swin = SwinConfig(image_size=(8, 8), patch_size=2, dim=4, depths=(1, 1), heads=(1, 2), window=2, num_classes=2)
        save_backbone(build_backbone(swin), tmp_path)
    elif request.param == "timm":
        shape: dict[str, Any] = {"img_size": (8, 8), "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}
        theirs = VisionTransformer(**shape, reg_tokens=2, pre_norm=True, global_pool="avg")
        write_timm_folder(tmp_path, theirs.state_dict(), num_heads=2, reg_tokens=2, img_size=[8, 8])
    else:
        make(request.param, **(_VIT if request.param == "vit" else _SWIN)).save_pretrained(tmp_path)
    return tmp_path


def test_weights(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    counts = _attack(folder, folder / WEIGHTS, lambda good, rng: _mutate(good, rng, header), 150)
    assert min(counts.values()) > 5, counts  # damage in the data goes unnoticed, in the header it does not


def test_bytes_of_the_config(folder: Path) -> None:
    counts = _attack(folder, folder / CONFIG, lambda good, rng: _mutate(good, rng, len(good)), 150)
    assert counts["refused"] > 5, counts


def test_values_of_the_config(folder: Path) -> None:
    def swap(good: bytes, rng: random.Random) -> bytes:
        return json.dumps(_swap_value(json.loads(good), rng)).encode()

    counts = _attack(folder, folder / CONFIG, swap, 150)
    assert counts["refused"] > 5, counts


def test_values_of_the_header(folder: Path) -> None:
    """Shapes, types and offsets that are well-formed and wrong."""

    def swap(good: bytes, rng: random.Random) -> bytes:
        length = int.from_bytes(good[:8], "little")
        header = json.dumps(_swap_value(json.loads(good[8 : 8 + length]), rng)).encode()
        return len(header).to_bytes(8, "little") + header + good[8 + length :]

    counts = _attack(folder, folder / WEIGHTS, swap, 80)
    assert counts["refused"] > 5, counts


@pytest.mark.parametrize("name", ["preprocessor_config.json", "model.safetensors.index.json"])
def test_values_of_the_other_files(name: str, tmp_path: Path) -> None:
    theirs = make("vit", **_VIT)
    theirs.save_pretrained(tmp_path, max_shard_size="1KB" if "index" in name else "1GB")
    if "preprocessor" in name:
        sizes = {"size": {"height": 9, "width": 9}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}}
        switches = {"do_resize": True, "do_rescale": True, "do_normalize": True, "resample": 2, "rescale_factor": 0.1}
        values = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, **sizes, **switches}
        (tmp_path / name).write_text(json.dumps(values))

    def swap(good: bytes, rng: random.Random) -> bytes:
        return json.dumps(_swap_value(json.loads(good), rng)).encode()

    counts = _attack(tmp_path, tmp_path / name, swap, 150)
    assert counts["refused"] > 5, counts


def test_pickle(tmp_path: Path) -> None:
    make("vit", **_VIT).save_pretrained(tmp_path)
    path = tmp_path / "weights.pth"
    torch.save(load_file(tmp_path / WEIGHTS), path)
    counts = _attack(path, path, lambda good, rng: _mutate(good, rng, 3000), 150)
    assert counts["refused"] > 5, counts
