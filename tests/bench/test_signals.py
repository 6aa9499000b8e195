"""Signals for choosing bits: against running whole networks, by hand, and as a command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from maqee.apq.units import Unit
from maqee.bench.layer_noise import layer_noise, module_of
from maqee.bench.signal_moves import Answers, Change, Figure, answers_under, single_moves
from maqee.bench.signals import Signal, bench_signals, paper_signals, rank_signal
from maqee.compression.model_measure import noise_ratio, range_deviation
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel, QuantSettings, quantize
from tests.compression.makers import TASK, batches_of, digits
from tests.helpers import FIXTURES, invoke, load_miniature

SETTINGS = QuantSettings(widths=(3, 4, 5), act_widths=(3, 4, 5))
MOVES = [
    Change(Unit("layer", 1, "fc2"), (4, 3)),
    Change(Unit("layer", 2, "attention"), (5, 5)),
    Change(Unit("layer", 4, "qkv"), (3, 4)),
]


def fitted(method: str = "repq") -> tuple[EarlyExitModel, QuantizedModel, list[tuple[torch.Tensor, torch.Tensor]]]:
    model = load_miniature().eval()
    batches = batches_of(digits("calibration", 12), model, 8)
    return model, quantize(model, batches[0][0], method, SETTINGS), batches


def test_single_moves() -> None:
    moves = single_moves(12, 4, 4)
    assert len(moves) == len(set(moves)) == 12 * (4 * 4 + 2)
    assert [move.pair for move in moves if move.unit == Unit("layer", 3, "fc1")] == [(3, 4), (4, 3), (5, 4), (4, 5)]
    assert [move.pair for move in moves if move.unit == Unit("layer", 3, "attention")] == [(3, 3), (5, 5)]


@torch.inference_mode()
def test_changes_against_whole_networks() -> None:
    model, quantized, batches = fitted()
    base = quantized.bit_settings
    figures: list[Figure] = [
        lambda output, _, goal: TASK.loss(output, goal),
        lambda output, _, __: TASK.confidence(output),
    ]
    found = answers_under(model, quantized, batches, base, MOVES, figures)
    assert found.moved.shape == (3, 12, 3, 2)
    assert quantized.bit_settings == base

    def whole(bits: object, block: int) -> tuple[np.ndarray, np.ndarray]:
        quantized.set_widths(bits)  # type: ignore[arg-type]
        rows, deviations = [], []
        for images, labels in batches:
            assert isinstance(quantized.model, EarlyExitModel)
            got, wanted = (network.forward_all(images, blocks=True) for network in (quantized.model, model))
            rows.append(
                torch.stack([torch.stack([TASK.loss(o, labels), TASK.confidence(o)], 1) for o in got.outputs], 1)
            )
            pair = wanted.blocks[block - 1], got.blocks[block - 1]
            deviations.append(torch.stack([range_deviation(*pair), noise_ratio(*pair)], 1))
        return torch.cat(rows).double().numpy(), torch.cat(deviations).double().numpy()

    for index, (unit, pair) in enumerate(MOVES):
        before, before_block = whole(base, unit.number)
        after, after_block = whole(unit.with_pair(base, pair), unit.number)
        np.testing.assert_allclose(found.base, before, rtol=1e-6)
        np.testing.assert_allclose(found.moved[index], after - before, atol=1e-7)
        np.testing.assert_allclose(found.base_blocks[:, unit.number - 1], before_block, rtol=1e-6)
        np.testing.assert_allclose(found.moved_blocks[index], after_block - before_block, atol=1e-7)
    assert not found.moved[2, :, :2].any()  # block 4 is behind both exits
    assert found.moved[2, :, 2].any()


@pytest.mark.parametrize("method", ["rtn", "repq"])
def test_noise_of_one_layer_by_hand(method: str) -> None:
    """The second layer of an MLP alone is quantized: its output is the product of rounded numbers."""
    model, quantized, batches = fitted(method)
    base = quantized.bit_settings
    found = layer_noise(quantized, batches, base, MOVES, TASK)
    assert (found.own.shape, found.fisher.shape) == ((3, 12), (3, 12, 3))
    assert quantized.bit_settings == base
    assert all(module.enabled for module in (*quantized.layers.values(), *quantized.attends.values()))
    layer = module_of(quantized, MOVES[0].unit)
    assert layer.name.endswith("blocks.0.mlp.fc2")
    seen: list[torch.Tensor] = []
    inner = model.get_submodule("backbone.blocks.0.mlp.fc2")
    hook = inner.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.inference_mode():
        for images, _ in batches:
            model(images)
        hook.remove()
        wanted = torch.cat([inner(x) for x in seen])
        errors = []
        for bits in (3, 4):
            layer.switch(4, bits)  # type: ignore[call-arg]
            errors.append((torch.cat([layer(x) for x in seen]) - wanted).square().flatten(1).sum(1))
    own = (errors[0] - errors[1]) / wanted.square().flatten(1).sum(1)
    np.testing.assert_allclose(found.own[0], own.numpy(), rtol=1e-3, atol=1e-6)


def test_fisher_knows_who_sees_a_layer() -> None:
    _, quantized, batches = fitted()
    fisher = layer_noise(quantized, batches, quantized.bit_settings, MOVES, TASK).fisher
    assert (fisher[0] != 0).any(axis=0).all()  # block 1 is in front of everything
    assert not fisher[1, :, 0].any()  # block 2 is behind the first exit
    assert not fisher[2, :, :2].any()
    assert fisher[2, :, 2].mean() > 0  # fewer bits, more noise
    again = layer_noise(quantized, batches, quantized.bit_settings, MOVES, TASK).fisher
    np.testing.assert_array_equal(fisher, again)


def test_the_four_risks_by_hand() -> None:
    """Two images, one exit after block 1 of two; figures are loss, divergence, logit error and confidence."""
    base = np.zeros((2, 2, 4))
    base[..., 0] = [[2.0, 1.0], [4.0, 1.0]]  # loss: gaps of 1 and 3 at the exit
    base[..., 3] = [[0.5, 0.9], [0.7, 0.9]]  # confidence: median 0.6 at the exit
    moved = np.zeros((2, 2, 2, 4))
    moved[0, :, 0, 0] = [0.5, 1.5]
    moved[0, 0, 0, 3] = 0.08  # now within 0.05 of the median
    moved_blocks = np.array([[[0.2, 0.02], [0.4, 0.04]], [[0.1, 0.01], [0.1, 0.01]]])
    blocks = np.array([[[0.1, 0.2], [0.3, 0.4]]] * 2)
    moves = [Change(Unit("layer", 1, "qkv"), (3, 4)), Change(Unit("layer", 2, "qkv"), (3, 4))]
    found = {
        signal.name: signal.full for signal in paper_signals(Answers(base, moved, blocks, moved_blocks), moves, (1, 2))
    }
    np.testing.assert_allclose(found["PGR"], [1.0, 0.0])
    np.testing.assert_allclose(found["BSR"], [0.5, 0.0])
    np.testing.assert_allclose(found["QID"], [0.3, 0.1])
    np.testing.assert_allclose(found["inverse SQNR"], [0.03, 0.01])
    total = 0.75 * (1 / 2 + 0.5) + 0.25 * (0.3 / 0.3 + 0.03 / 0.4)
    np.testing.assert_allclose(found["R, sum of the four"], [total, 0.25 * (0.1 / 0.3 + 0.01 / 0.4)])


def test_ranks_by_hand() -> None:
    moves = [Change(Unit("layer", 1, "fc1"), pair) for pair in ((3, 4), (4, 3), (5, 4), (4, 5))]
    effects = np.zeros((4, 2, 2))
    effects[:, 1, 0] = [4, 3, 2, 1]  # loss at full depth
    effects[:, 0, 1] = [4, 3, 1, 2]  # divergence at the exit
    row = rank_signal(Signal("x", 5, np.array([4.0, 3, 2, 1]), np.array([1.0, 2, 3, 4])), effects, moves)
    assert (row.signal, row.images) == ("x", 5)
    assert row.loss_full == pytest.approx(1)
    assert row.loss_exits == pytest.approx(-1)
    assert row.divergence_full is None  # all the same
    assert row.divergence_exits == pytest.approx(-0.8)
    assert row.fewer == pytest.approx(-1)
    assert row.more == pytest.approx(1)


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "signals.json"
    numbers = ("--images", "4,8", "--held-out", "24", "--fit-images", "8")
    run = ("bench", "signals", str(FIXTURES / "digits"), "--data", "digits", "--method", "rtn", "--device", "cpu")
    result = invoke(*run, *numbers, "--out", str(out))
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    assert (figures["moves"], figures["held_out"], figures["base"], figures["widest"]) == (4 * 18, 24, "W4A4", "W6A8")
    assert len(figures["rows"]) == 5 + 2 * 6
    for row in figures["rows"]:
        assert row["signal"] in result.output
        for name in ("loss_full", "loss_exits", "divergence_full", "divergence_exits", "fewer", "more"):
            assert row[name] is None or -1 <= row[name] <= 1
    ranked = {row["signal"]: row["divergence_exits"] for row in figures["rows"] if row["divergence_exits"] is not None}
    assert figures["best"] in ranked


def test_mistakes() -> None:
    with pytest.raises(MaqeeError, match=r"leaves 0 to measure real effects on; at least 16 are needed"):
        bench_signals(FIXTURES / "digits", data="digits", images=(100_000,), device="cpu")
    with pytest.raises(MaqeeError, match=r"^images: give at least one number"):
        bench_signals(FIXTURES / "digits", data="digits", images=(), device="cpu")
