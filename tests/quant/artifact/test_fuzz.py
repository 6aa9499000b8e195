"""Thousands of damaged quantized models: each loads or is refused with a sentence, soon and without taking memory.

Raw damage to model.safetensors is caught by its checksum. So most damage here is done with a checksum that fits again,
as a foreign or careless writer would leave it, to reach everything behind.
"""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.models import ViTConfig
from maqee.models.load import build_backbone
from maqee.quant import Bits, QuantSettings, quantize
from maqee.quant.artifact.files import save_quantized
from maqee.runtime import load_quantized_network as load_quantized
from tests.helpers import randomize
from tests.models.test_load_fuzz import _mutate, _swap_value
from tests.quant.artifact.damage import CONFIG, WEIGHTS, write_folder
from tests.quant.makers import give_twin_grids, give_two_groups

pytestmark = pytest.mark.slow

_SECONDS, _MEGABYTES = 20.0, 800
Damage = Callable[[bytes, bytes, random.Random], tuple[bytes, bytes]]  # of config and weights
_MINI = ViTConfig(image_size=(8, 8), patch_size=4, dim=8, depth=1, heads=2, mlp_dim=8, num_classes=2)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with every kind of grid, groups and an exit."""
    torch.manual_seed(0)
    network = randomize(EarlyExitModel(build_backbone(_MINI), (), (), final="mlp"))
    settings = QuantSettings(overrides=(("proj", Bits(None, 4)),), widths=(3,))
    quantized = quantize(network, torch.randn(2, 3, 8, 8), "repq", settings)
    give_two_groups(quantized)
    give_twin_grids(quantized)
    folder = tmp_path_factory.mktemp("good")
    save_quantized(quantized, folder)
    load_quantized(folder)
    return folder


def _attack(good: Path, folder: Path, damage: Damage, seeds: range, refit: bool) -> dict[str, int]:
    """Load with damaged files; anything but success or MaqeeError is a failure."""
    config, weights = (good / CONFIG).read_bytes(), (good / WEIGHTS).read_bytes()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counts = {"loaded": 0, "refused": 0}
    for seed in seeds:
        rng = random.Random(seed)
        new_config, new_weights = damage(config, weights, rng)
        while (new_config, new_weights) == (config, weights):  # some ways of damaging leave everything as it was
            new_config, new_weights = damage(config, weights, rng)
        if refit:
            write_folder(folder, json.loads(new_config), new_weights)
        else:
            (folder / CONFIG).write_bytes(new_config)
            (folder / WEIGHTS).write_bytes(new_weights)
        start, message = time.perf_counter(), str(folder)
        try:
            load_quantized(folder)
            counts["loaded"] += 1
        except MaqeeError as error:
            counts["refused"] += 1
            message = str(error)
        except BaseException as error:
            pytest.fail(f"seed {seed}: {error!r}")
        assert str(folder) in message, f"seed {seed}: {message}"
        assert time.perf_counter() - start < _SECONDS, f"seed {seed}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
        assert grown < _MEGABYTES, f"seed {seed}: {grown:.0f} MB"
    return counts


def _header(weights: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(weights[:8], "little")
    return json.loads(weights[8 : 8 + length]), weights[8 + length :]


def _with_header(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("start", [0, 2000])
def test_bytes_of_the_weights(start: int, good: Path, tmp_path: Path) -> None:
    def damage(config: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        return config, _mutate(weights, rng, 3000)

    counts = _attack(good, tmp_path, damage, range(start, start + 2000), refit=False)
    assert counts["loaded"] == 0, counts


@pytest.mark.parametrize("start", [0, 1000])
def test_bytes_of_the_weights_behind_the_checksum(start: int, good: Path, tmp_path: Path) -> None:
    length = 8 + int.from_bytes((good / WEIGHTS).read_bytes()[:8], "little")

    def damage(config: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        return config, _mutate(weights, rng, length)

    counts = _attack(good, tmp_path, damage, range(start, start + 1000), refit=True)
    assert min(counts.values()) > 5, counts  # damage in the data goes unnoticed, in the header it does not


@pytest.mark.parametrize("start", [0, 750])
def test_bytes_of_the_config(start: int, good: Path, tmp_path: Path) -> None:
    def damage(config: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        return _mutate(config, rng, len(config)), weights

    counts = _attack(good, tmp_path, damage, range(start, start + 750), refit=False)
    assert counts["refused"] > 5, counts


@pytest.mark.parametrize("start", [0, 500, 1000])
def test_values_of_the_config(start: int, good: Path, tmp_path: Path) -> None:
    def damage(config: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        return json.dumps(_swap_value(json.loads(config), rng)).encode(), weights

    counts = _attack(good, tmp_path, damage, range(start, start + 500), refit=False)
    assert counts["refused"] > 5, counts


@pytest.mark.parametrize("start", [0, 500])
def test_values_of_the_header(start: int, good: Path, tmp_path: Path) -> None:
    """Shapes, types and offsets that are well-formed and wrong."""

    def damage(config: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        header, data = _header(weights)
        return config, _with_header(_swap_value(header, rng), data)

    counts = _attack(good, tmp_path, damage, range(start, start + 500), refit=True)
    assert counts["refused"] > 100, counts


@pytest.mark.parametrize("start", [0, 300])
def test_tensors(start: int, good: Path, tmp_path: Path) -> None:
    """Tensors removed, renamed, swapped, of another type or shape, with numbers that cannot be."""

    def damage(config: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        tensors = safetensors.torch.load(weights)
        for _ in range(rng.choice([1, 1, 2])):
            name, other = rng.sample(sorted(tensors), 2)
            kind = rng.choice(["remove", "rename", "swap", "type", "shape", "numbers", "add"])
            if kind == "remove":
                del tensors[name]
            elif kind == "rename":
                tensors[name + rng.choice(["x", ".codes", "\u0000", ""])] = tensors.pop(name)
            elif kind == "swap":
                tensors[name], tensors[other] = tensors[other], tensors[name]
            elif kind == "type":
                types = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int64, torch.bool]
                tensors[name] = tensors[name].to(rng.choice(types))
            elif kind == "shape":
                tensors[name] = rng.choice([tensors[name][None], tensors[name].flatten()[:-1], torch.zeros(0)])
            elif kind == "numbers":
                wrong = rng.choice([float("nan"), float("inf"), -1.0, 0.0, 1e38, 1e-45])
                floating = tensors[name].is_floating_point()
                tensors[name] = torch.full_like(tensors[name], wrong if floating else rng.choice([0, 1, 127]))
            else:
                tensors[f"{name}.more"] = torch.zeros(1)
        return config, safetensors.torch.save({name: tensor.clone() for name, tensor in tensors.items()})

    counts = _attack(good, tmp_path, damage, range(start, start + 300), refit=True)
    assert counts["refused"] > 100, counts


def test_anything_in_place_of_the_files(good: Path, tmp_path: Path) -> None:
    """Empty, truncated, foreign files."""

    def damage(config: bytes, weights: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        strange = [b"", b"{}", b"[]", b"null", b"\xff\xfe", rng.randbytes(40), b"[" * 100_000, b'{"format": 1}']
        if rng.random() < 0.5:
            return rng.choice([*strange, config[: rng.randrange(len(config))], weights]), weights
        return config, rng.choice([*strange, weights[: rng.randrange(len(weights))], config])

    counts = _attack(good, tmp_path, damage, range(200), refit=False)
    assert counts == {"loaded": 0, "refused": 200}
