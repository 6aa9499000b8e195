"""A run that is stopped, politely or not, ends with the same weights as one that is not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from maqee.errors import MaqeeError
from maqee.training import read_recipe, run_recipe

pytestmark = pytest.mark.trains

RECIPE = {
    "name": "tiny",
    "seed": 3,
    "model": {"source": "vit-digits"},
    "data": {"name": "digits"},
    "exits": {"scheme": "lgvit", "positions": [2, 4]},
    "checkpoint_minutes": 0,
    "stages": [
        {"kind": "joint", "epochs": 0.5, "batch_size": 32, "lr": 0.001, "ema": 0.9, "drop_path": 0.2,
         "augment": {"padding": 1, "mixup": 0.2}},
        {"kind": "lgvit-heads", "epochs": 0.3, "batch_size": 32, "lr": 0.001},
    ],
}  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


def start(recipe: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "maqee", "train", str(recipe), "--out", str(out), "--device", "cpu"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def weights(out: Path) -> list[bytes]:
    return [(out / stage / "model.safetensors").read_bytes() for stage in ("1-joint", "2-lgvit-heads")]


def wait_for_checkpoints(process: subprocess.Popen[bytes], out: Path, count: int) -> None:
    """Until the run has saved itself `count` more times, or has ended."""
    seen: set[int] = set()
    while process.poll() is None and len(seen) <= count:
        for path in out.glob("*.checkpoint.safetensors"):
            with suppress(FileNotFoundError):  # a stage that ends removes its own
                seen.add(path.stat().st_mtime_ns)
        time.sleep(0.001)


@pytest.mark.stops
@pytest.mark.process
def test_killed_at_random_moments(recipe: Path, tmp_path: Path) -> None:
    run_recipe(read_recipe(recipe), tmp_path / "whole", device="cpu")
    out = tmp_path / "killed"
    moments, killed = random.Random(5), 0
    for _ in range(3):
        process = start(recipe, out)
        wait_for_checkpoints(process, out, moments.randint(1, 5))
        time.sleep(0.05 * moments.random())
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL  # a quick machine may have been done before
    assert killed
    assert start(recipe, out).wait() == 0
    assert weights(out) == weights(tmp_path / "whole")
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    steps = [(line["stage"], line["step"]) for line in lines]
    assert steps == sorted(set(steps))


@pytest.mark.stops
@pytest.mark.process
def test_ctrl_c_saves_and_goes_on(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "polite"
    overrides = ["checkpoint_minutes=60"]
    run_recipe(read_recipe(recipe, overrides), tmp_path / "whole", device="cpu")
    process = start(recipe, out)
    while not (out / "log.jsonl").exists() and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    if process.returncode != 0:  # it may have been done already
        assert process.returncode == 130
        assert b"Run the same command again" in errors
    run_recipe(read_recipe(recipe), out, device="cpu")
    assert weights(out) == weights(tmp_path / "whole")


def test_a_run_folder_belongs_to_one_recipe(recipe: Path, tmp_path: Path) -> None:
    short = ["stages.0.epochs=0.03", "stages.1.epochs=0.03"]
    first = run_recipe(read_recipe(recipe, short), tmp_path / "out", device="cpu")
    again = run_recipe(read_recipe(recipe, short), tmp_path / "out", device="cpu")
    assert again["stages"] == first["stages"]  # nothing is trained twice
    with pytest.raises(MaqeeError, match="another recipe"):
        run_recipe(read_recipe(recipe, [*short, "seed=4"]), tmp_path / "out", device="cpu")


def test_divergence_is_reported(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="diverged"):
        run_recipe(read_recipe(recipe, ["stages.0.lr=1.0e30", "stages.0.epochs=2"]), tmp_path / "out", device="cpu")


def test_tensorboard_and_log(recipe: Path, tmp_path: Path) -> None:
    short = ["stages.0.epochs=0.1", "stages.1.epochs=0.03", "tensorboard=true"]
    run_recipe(read_recipe(recipe, short), tmp_path / "out", device="cpu")
    assert list((tmp_path / "out" / "tensorboard").iterdir())
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert {"loss", "gradient_norm", "rate", "epoch", "seconds"} <= set(lines[0])
