"""Two processes learn what one process with the doubled batch learns; accumulation likewise."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor

from maqee.tensors import read_tensors
from maqee.training import read_recipe, run_recipe

pytestmark = pytest.mark.trains

RECIPE = {
    "name": "pair",
    "seed": 1,
    "model": {"source": "vit-digits"},
    "data": {"name": "digits"},
    "exits": {"scheme": "lgvit", "positions": [2, 4]},
    "stages": [
        {"kind": "joint", "epochs": 0.2, "batch_size": 32, "lr": 0.0005, "ema": 0.9,
         "augment": {"padding": 1, "mixup": 0.4, "cutmix": 1.0, "erase": 0.5}},
        {"kind": "lgvit-heads", "epochs": 0.1, "batch_size": 32, "lr": 0.0005},
    ],
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def assert_same_weights(one: Path, other: Path, stages: tuple[str, ...]) -> None:
    """All but a few in ten thousand: where a gradient is next to nothing, Adam makes steps of its rounding."""
    for stage in stages:
        first, second = (read_tensors(out / stage / "model.safetensors") for out in (one, other))
        pairs = {name: (meaningful(name, tensor), meaningful(name, second[name])) for name, tensor in first.items()}
        close = {name: torch.isclose(*pair, rtol=1e-3, atol=2e-5).flatten() for name, pair in pairs.items()}
        differing = [name for name, same in close.items() if not same.all()]
        assert torch.cat(list(close.values())).float().mean() > 0.9995, f"{stage}: {differing} differ"


def meaningful(name: str, tensor: Tensor) -> Tensor:
    """Without what the loss does not depend on: there the gradient is rounding noise, and Adam makes it a full step.

    Softmax ignores the bias of the keys; a batch norm ignores the bias of the layer in front of it.
    """
    if name.endswith("attn.qkv.bias"):
        query, _, value = tensor.chunk(3)
        return torch.cat([query, value])
    if name.endswith(("project.bias", "project_norm.running_mean")):
        return torch.zeros(())
    return tensor


@pytest.mark.process
def test_two_processes_equal_one(tmp_path: Path) -> None:
    recipe = tmp_path / "pair.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    start = read_recipe(recipe)
    run_recipe(start, tmp_path / "one", device="cpu")
    port = str(free_port())
    command = [sys.executable, "-m", "maqee", "train", str(recipe), "--out", str(tmp_path / "two")]
    processes = []
    for rank in range(2):
        environment = {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}  # fmt: skip
        processes.append(
            subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()[-2000:]
    assert_same_weights(tmp_path / "one", tmp_path / "two", ("1-joint", "2-lgvit-heads"))


@pytest.mark.parametrize("pieces", [2, 4])
def test_accumulation_equals_the_whole_batch(tmp_path: Path, pieces: int) -> None:
    # Heads with batch norm see each piece for itself, so this holds for the others only; and each piece has its own
    # random draws, so augmentation is off.
    values = {**RECIPE, "exits": {"scheme": "mlp", "positions": [2, 4]}, "stages": [
        {"kind": "joint", "epochs": 0.2, "batch_size": 32, "lr": 0.0005}]}  # fmt: skip
    recipe = tmp_path / "pieces.yaml"
    recipe.write_text(yaml.safe_dump(values))
    run_recipe(read_recipe(recipe), tmp_path / "whole", device="cpu")
    run_recipe(read_recipe(recipe, [f"stages.0.accumulate={pieces}"]), tmp_path / "pieces", device="cpu")
    assert_same_weights(tmp_path / "whole", tmp_path / "pieces", ("1-joint",))
