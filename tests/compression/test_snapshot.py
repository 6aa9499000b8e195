"""A snapshot brings everything back that training changes, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from maqee.compression.snapshot import load_snapshot, save_snapshot
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel
from maqee.quant.learning import finish_learning, start_learning
from maqee.tensors import read_tensors_and_metadata, write_tensors
from maqee.widths import BitSettings, BlockWidths
from tests.helpers import set_weights
from tests.quant.makers import pictures, quantized

pytestmark = pytest.mark.trains


def outputs(model: QuantizedModel) -> Tensor:
    assert isinstance(model.model, EarlyExitModel)
    with torch.no_grad():
        return torch.stack(model.model.eval().forward_all(pictures()).outputs)


def step(model: QuantizedModel) -> None:
    assert isinstance(model.model, EarlyExitModel)
    start_learning(model)
    optimizer = torch.optim.SGD(model.model.requires_grad_(True).parameters(), lr=0.05)
    optimizer.zero_grad()
    torch.stack(model.model.train().forward_all(pictures()).outputs).square().mean().backward()
    optimizer.step()
    finish_learning(model)


def state_of(model: QuantizedModel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("method", ["repq", "erq", "mptq"])
def test_there_and_back(method: str, tmp_path: Path) -> None:
    model = quantized(method=method, exits="lgvit", widths=(3, 5))
    states, answers = [], []
    for number in range(3):  # untrained, trained once, trained twice
        states.append(state_of(model))
        answers.append({bits: at(model, bits) for bits in (3, 4, 5)})
        save_snapshot(model, tmp_path / f"{number}.safetensors")
        set_weights(model, (4, 4, 4, 4))
        step(model)
    for number in (1, 0, 2):
        load_snapshot(model, tmp_path / f"{number}.safetensors")
        assert same(state_of(model), states[number])
        assert all(torch.equal(at(model, bits), answer) for bits, answer in answers[number].items())
        assert {layer.trained for layer in model.layers.values()} == {number > 0}
    fresh = quantized(method=method, exits="lgvit", widths=(3, 5))  # as another process has it
    load_snapshot(fresh, tmp_path / "2.safetensors")
    assert same(state_of(fresh), states[2])
    assert torch.equal(at(fresh, 5), answers[2][5])


def at(model: QuantizedModel, bits: int) -> Tensor:
    set_weights(model, (bits,) * 4)
    return outputs(model)


PAIRS: dict[str, Any] = {"widths": (3, 5), "act_widths": (3, 6), "switched": ("block", "merge")}


def allocations(depth: int) -> list[BitSettings]:
    """Uniform ones, and one whose layers differ."""
    mixed = BlockWidths(qkv=(3, 6), attention=(3, 3), projection=(5, 3), fc1=(4, 4), fc2=(3, 6))
    uniform = [BitSettings.uniform(weights, acts, depth) for weights, acts in ((4, 4), (3, 6), (5, 3))]
    return [replace(uniform[0], blocks=(mixed,) * depth), *uniform]


def at_widths(model: QuantizedModel, bits: BitSettings) -> Tensor:
    model.set_widths(bits)
    return outputs(model)


@pytest.mark.parametrize(
    ("preset", "method"), [("test-vit", "repq"), ("test-vit", "erq"), ("test-vit", "mptq"), ("test-swin", "erq")]
)
def test_mixed_widths_there_and_back(preset: str, method: str, tmp_path: Path) -> None:
    """Whatever widths are in use when a snapshot is taken or brought back: everything that was fitted is as it was."""
    model = quantized(preset, method, exits="mlp", **PAIRS)
    every = allocations(model.depth)
    answers = []
    for number in range(3):  # untrained, trained once, trained twice
        answers.append([at_widths(model, bits) for bits in every])
        model.set_widths(every[number])
        save_snapshot(model, tmp_path / f"{number}.safetensors")
        model.set_widths(every[0])
        step(model)
    for in_use in every:
        for number in (1, 0, 2, 0):
            model.set_widths(in_use)
            load_snapshot(model, tmp_path / f"{number}.safetensors")
            assert model.bit_settings.blocks == in_use.blocks
            assert torch.equal(outputs(model), answers[number][every.index(in_use)])
            for bits, answer in zip(every, answers[number], strict=True):
                assert torch.equal(at_widths(model, bits), answer)
    fresh = quantized(preset, method, exits="mlp", **PAIRS)  # as another process has it
    for number in (2, 0):
        load_snapshot(fresh, tmp_path / f"{number}.safetensors")
        assert all(
            torch.equal(at_widths(fresh, bits), answer) for bits, answer in zip(every, answers[number], strict=True)
        )


def test_two_processes_train_alike(tmp_path: Path) -> None:
    model = quantized(method="erq", exits="mlp")
    step(model)
    save_snapshot(model, tmp_path / "kept.safetensors")
    other = quantized(method="erq", exits="mlp")
    load_snapshot(other, tmp_path / "kept.safetensors")
    step(model)
    step(other)
    assert same(state_of(model), state_of(other))


def test_bits_in_use_stay(tmp_path: Path) -> None:
    model = quantized(exits="mlp", widths=(3, 5))
    save_snapshot(model, tmp_path / "kept.safetensors")
    set_weights(model, (3, 4, 5, 4))
    load_snapshot(model, tmp_path / "kept.safetensors")
    assert model.bit_settings.block_weights == (3, 4, 5, 4)


def test_in_the_middle_of_training(tmp_path: Path) -> None:
    """A training that was broken off leaves nothing behind."""
    model = quantized(method="repq", exits="mlp")
    before, kept = outputs(model), tmp_path / "kept.safetensors"
    save_snapshot(model, kept)
    start_learning(model)
    load_snapshot(model, kept)
    assert torch.equal(outputs(model), before)
    assert not any(layer.learning for layer in model.layers.values())
    assert not any(attend.learning for attend in model.attends.values())
    assert not any(name.endswith("gain") for name in model.model.state_dict())


def test_snapshots_of_other_searches(tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    save_snapshot(quantized(exits="mlp"), path)
    with pytest.raises(MaqeeError, match="at 3 bits: it belongs to another search"):
        load_snapshot(quantized(exits="mlp", widths=(3,)), path)
    with pytest.raises(MaqeeError, match="does not exist"):
        load_snapshot(quantized(exits="mlp"), tmp_path / "gone.safetensors")
    tensors, metadata = read_tensors_and_metadata(path)
    write_tensors(path, {name: value for name, value in tensors.items() if "norm1" not in name}, metadata)
    with pytest.raises(MaqeeError, match="belongs to another search"):
        load_snapshot(quantized(exits="mlp"), path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(MaqeeError, match="not a readable"):
        load_snapshot(quantized(exits="mlp"), path)
