"""Traces: what is written comes back, and nothing damaged is taken for a trace."""

from __future__ import annotations

import json
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from maqee.apq.trace import Trace
from maqee.errors import MaqeeError
from tests.apq.makers import make_trace
from tests.helpers import by_block


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small good trace on disk."""
    make_trace(samples=3).save(tmp_path / "trace.safetensors")
    return tmp_path / "trace.safetensors"


def _rewrite(path: Path, tensors: dict[str, Any] | None = None, drop: str = "", **facts: Any) -> None:
    """Write a well-formed file with other arrays or other facts."""
    with safe_open(path, "pt") as file:
        stored = json.loads(file.metadata()["maqee"])
    arrays = {name: tensor for name, tensor in {**load_file(path), **(tensors or {})}.items() if name != drop}
    stored = {key: value for key, value in {**stored, **facts}.items() if key != drop}
    save_file(arrays, path, {"maqee": json.dumps(stored)})


def test_round_trip(path: Path) -> None:
    trace, back = make_trace(samples=3), Trace.load(path)
    for field in fields(Trace):
        ours, theirs = getattr(trace, field.name), getattr(back, field.name)
        assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs, field.name
    assert (back.depth, back.exits, back.samples) == (6, 3, 3)
    before = path.read_bytes()
    back.save(path)
    assert path.read_bytes() == before


def test_a_trace_of_the_version_before(tmp_path: Path) -> None:
    """Widths are by layer now; all else is as it was, and the new file is read as the old one."""
    path = Path(__file__).parents[2] / "results" / "maqee" / "cifar100-vit-small-trace.safetensors"
    trace = Trace.load(path)
    assert (trace.depth, trace.exits) == (12, 4)
    with safe_open(path, "pt") as file:
        stored = json.loads(file.metadata()["maqee"])
    assert stored["version"] == 1
    assert trace.bits.block_weights == tuple(stored["bits"]["weights"])
    assert {pair[1] for block in trace.bits.blocks for pair in block} == {stored["bits"]["activations"]}
    assert [[*part[:4]] for part in trace.parts] == stored["parts"]
    trace.save(tmp_path / "again")
    again = Trace.load(tmp_path / "again")
    assert (again.bits, again.parts, again.exit_blocks) == (trace.bits, trace.parts, trace.exit_blocks)
    before, after = load_file(path), load_file(tmp_path / "again")
    assert before.keys() == after.keys()
    assert all(torch.equal(array, after[name]) for name, array in before.items())


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        make_trace().confidence[0, 0] = 0.5


def test_other_bits_keep_the_arrays() -> None:
    trace = make_trace()
    other = trace.at_bits(by_block((3, 5, 4, 4, 4, 4)))
    assert other.bits.block_weights == (3, 5, 4, 4, 4, 4)
    assert np.array_equal(other.loss, trace.loss)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence": np.full((3, 4), 1.5)}, "confidence: values must be from 0 to 1"),
        ({"correct": np.full((3, 4), -1.0)}, "correct: values must be from 0 to 1"),
        ({"loss": np.full((3, 4), np.nan)}, "loss: the array holds NaN"),
        ({"noise": np.full((3, 6), np.inf)}, "noise: the array holds NaN or infinity"),
        ({"drift": np.full((3, 6), -1.0)}, "drift: values must be at least 0"),
        ({"drift": np.zeros((3, 5))}, r"drift: the array has shape \(3, 5\), not \(3, 6\)"),
        ({"loss": np.zeros((2, 4))}, "loss: the array has shape"),
        ({"confidence": np.zeros((0, 4))}, "at least one sample"),
        ({"exit_blocks": (2, 2, 4, 6)}, "exit_blocks"),
        ({"bits": (4,) * 5}, "exit_blocks"),
    ],
)
def test_wrong_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        make_trace(samples=3, **changes)


@pytest.mark.parametrize(
    ("damage", "key"),
    [
        ({"drop": "loss"}, "loss"),
        ({"drop": "task"}, "task"),
        ({"drop": "bits"}, "bits"),
        ({"tensors": {"noise": torch.zeros(3, 7)}}, "noise"),
        ({"tensors": {"noise": torch.zeros(3, 6, dtype=torch.float64)}}, "noise"),
        ({"tensors": {"noise": torch.zeros(3, 6, dtype=torch.bfloat16)}}, "bfloat16"),
        ({"tensors": {"noise": torch.full((3, 6), torch.nan)}}, "noise"),
        ({"tensors": {"strange": torch.zeros(1)}}, "strange"),
        ({"version": 3}, "version"),
        ({"version": True}, "version"),
        ({"format": "maqee-plan"}, "format"),
        ({"exit_blocks": [2, 3, "4", 6]}, "exit_blocks.2"),
        ({"exit_blocks": [6]}, "confidence"),
        ({"parts": [["patch", "strange", 1, 0]]}, "parts.0"),
        ({"parts": [["block 9", "linear", 1, 9]]}, "parts"),
        ({"parts": [["block", "linear", 10**30, 1]]}, "parts"),
        ({"bits": {"weights": [4] * 6, "activations": 99}}, "99"),
        ({"bits": {"weights": [4] * 6, "activations": "4"}}, "bits.blocks.0"),
        ({"bits": {"blocks": [[[4, 4]] * 5] * 6, "more": 1}}, "more"),
        ({"bits": {"blocks": [[[4, 4]] * 4] * 6}}, "bits.blocks.0"),
        ({"bits": {"blocks": [[[4, 4, 4]] * 5] * 6}}, "bits.blocks.0"),
        ({"more": 1}, "more"),
    ],
)
def test_wrong_files(path: Path, damage: dict[str, Any], key: str) -> None:
    _rewrite(path, **damage)
    with pytest.raises(MaqeeError) as caught:
        Trace.load(path)
    assert str(path) in str(caught.value)
    assert key in str(caught.value)


def test_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="does not exist"):
        Trace.load(tmp_path / "nothing")
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(MaqeeError, match="no maqee trace"):
        Trace.load(tmp_path / "model.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "odd.safetensors", {"maqee": "{"})
    with pytest.raises(MaqeeError, match="metadata"):
        Trace.load(tmp_path / "odd.safetensors")


def _damage(good: bytes, rng: random.Random) -> bytes:
    """Change a few bytes, mostly in the header."""
    data = bytearray(good)
    header = 8 + int.from_bytes(good[:8], "little")
    for _ in range(rng.choice([1, 1, 2, 4])):
        place = rng.randrange(header if rng.random() < 0.8 else len(data)) % len(data)
        kind = rng.randrange(6)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            digits = [index for index, byte in enumerate(data[:header]) if 48 <= byte <= 57]
            data[rng.choice(digits or [place])] = rng.choice(b"0123456789")
        elif kind == 2:
            data[place : place + 4] = rng.randbytes(4)  # floats become NaN or huge
        elif kind == 3:
            data[place:place] = rng.choice([b"9", b'"', b"[", b"-", b"\x00", b"e9"])
        elif kind == 4:
            del data[place : place + rng.choice([1, 2, 8])]
        elif rng.random() < 0.3:
            del data[place:]
        if not data:
            break
    return bytes(data)


def test_damaged_files(path: Path) -> None:
    """Thousands of damaged files: each loads as a valid trace or is refused in words."""
    good = path.read_bytes()
    loaded = refused = 0
    for seed in range(2000):
        path.write_bytes(_damage(good, random.Random(seed)))
        try:
            trace = Trace.load(path)
        except MaqeeError:
            refused += 1
        else:
            assert np.isfinite(trace.loss).all(), seed
            loaded += 1
    assert min(loaded, refused) > 100, (loaded, refused)
