"""Traces and block risks of a real model, against running the whole network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from maqee.apq import risks
from maqee.apq.risks import inverse_sqnr, qid
from maqee.compression import ModelMeasure
from maqee.compression import model_measure as measure_module
from maqee.evaluation.record import measure_exits
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.quant import Bits, QuantSettings, quantize
from tests.compression.makers import TASK, WIDTHS, digits, make_measure
from tests.helpers import by_block, randomize, set_weights
from tests.quant.makers import pictures

pytestmark = pytest.mark.trains

BITS = (4, 3, 5, 4)
SETTINGS = by_block(BITS)


def block_outputs(model: EarlyExitModel, images: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        return model.forward_all(images, blocks=True).blocks


def brute_risks(measure: ModelMeasure, bits: tuple[int, ...], count: int) -> tuple[np.ndarray, np.ndarray]:
    """QID and inverse SQNR of every block on the first images, from two whole networks; (L,) each.

    In the measure's own batches: in others the last place may be rounded differently, and move a number over the edge
    between two codes.
    """
    set_weights(measure.quantized, bits)
    found: list[np.ndarray] = []
    for images, _ in measure.batches:
        pairs = zip(block_outputs(measure.reference, images), block_outputs(measure.model, images), strict=True)
        rows = [
            (risks.range_deviation(one.numpy(), other.numpy()), risks.noise_ratio(one.numpy(), other.numpy()))
            for one, other in pairs
        ]
        found.append(np.array(rows))  # (blocks, 2, batch)
    drift, noise = np.concatenate(found, axis=2)[:, :, :count].mean(axis=2).T
    return drift, noise


def foreign_measure(**more: Any) -> ModelMeasure:
    """A model with exits that read several blocks, on noise."""
    network = randomize(add_exits(load_backbone("test-swin"), "lgvit"))
    assert isinstance(network, EarlyExitModel)
    images, targets = pictures(10), torch.arange(10)
    quantized = quantize(network, images[:4], "repq", QuantSettings(widths=WIDTHS))
    batches = [(images[:4], targets[:4]), (images[4:8], targets[4:8]), (images[8:], targets[8:])]
    return ModelMeasure(network, quantized, batches, TASK, "", **more)


def test_trace_is_what_evaluation_says(model: EarlyExitModel) -> None:
    measure, data = make_measure(model), digits("calibration", 40)
    trace = measure.trace(SETTINGS)
    for network, prefix in ((model, "float_"), (measure.model, "")):
        record = measure_exits(network, data, TASK, batch_size=16).record
        np.testing.assert_array_equal(getattr(trace, f"{prefix}confidence"), record.confidence)
        np.testing.assert_array_equal(getattr(trace, f"{prefix}loss"), record.loss)
        np.testing.assert_array_equal(getattr(trace, f"{prefix}correct"), record.score)
    assert measure.quantized.bit_settings.block_weights == BITS
    assert trace.exit_blocks == (1, 2, 4)
    assert trace.parts == tuple(model.parts())
    assert (trace.task, trace.model) == ("classification", "hash")
    drift, noise = brute_risks(measure, BITS, 40)
    np.testing.assert_allclose(qid(trace), drift, rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(inverse_sqnr(trace), noise, rtol=1e-4)


def test_batches_do_not_matter(model: EarlyExitModel) -> None:
    """Apart from an image now and then in which a number moves over the edge between two codes."""
    one, other = (make_measure(model, size=size) for size in (16, 40))
    other.quantized = one.quantized
    other.model = one.model
    for name in ("confidence", "loss", "noise", "drift", "float_confidence"):
        first, second = (getattr(measure.trace(SETTINGS), name) for measure in (one, other))
        agree = np.isclose(first, second, rtol=1e-3, atol=1e-5).all(axis=1)
        assert agree.mean() >= 0.9, name
        np.testing.assert_allclose(first.mean(axis=0), second.mean(axis=0), rtol=2e-2, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("path", [False, True])
@pytest.mark.parametrize(("scored", "kept"), [(None, 40), (20, 20), (16, 16), (500, 40)])
def test_block_risks_are_those_of_the_whole_network(
    model: EarlyExitModel, scored: int | None, kept: int, path: bool
) -> None:
    """Blocks before the changed one are as they were, so its input is too."""
    measure = make_measure(model, scored=scored)
    found = measure.block_risks(SETTINGS, [WIDTHS, (3, 4), (5,), (4, 6)], path)
    assert found.lowest == 3
    assert found.drift.shape == found.noise.shape == (4, 4)
    wanted = {0: WIDTHS, 1: (3, 4), 2: (5,), 3: (4, 6)}
    for block in range(4):
        for width in WIDTHS:
            cell = block, width - 3
            if width not in wanted[block]:
                assert np.isnan(found.drift[cell])
                assert np.isnan(found.noise[cell])
                continue
            drift, noise = brute_risks(measure, (*BITS[:block], width, *BITS[block + 1 :]), kept)
            part = slice(block, None if path else block + 1)
            assert found.drift[cell] == pytest.approx(drift[part].sum(), rel=2e-2, abs=1e-6)
            assert found.noise[cell] == pytest.approx(noise[part].sum(), rel=1e-2)


@pytest.mark.parametrize("path", [False, True])
def test_swin_merges_between_blocks(path: bool) -> None:
    measure = foreign_measure()
    bits = (4,) * 6
    found = measure.block_risks(by_block(bits), [(3, 5)] * 6, path)
    for block, width in ((0, 3), (1, 5), (2, 3), (5, 5)):
        _, noise = brute_risks(measure, (*bits[:block], width, *bits[block + 1 :]), 10)
        part = slice(block, None if path else block + 1)
        assert found.noise[block, width - 3] == pytest.approx(noise[part].sum(), rel=2e-2)


def test_risks_at_the_bits_in_use_are_the_traces(model: EarlyExitModel) -> None:
    measure = make_measure(model)
    trace = measure.trace(SETTINGS)
    found = measure.block_risks(SETTINGS, [(width,) for width in BITS], path=False)
    columns = np.arange(4), np.array(BITS) - 3
    np.testing.assert_allclose(found.drift[columns], qid(trace), rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(found.noise[columns], inverse_sqnr(trace), rtol=1e-5)


def test_bits_are_as_they_were_afterwards(model: EarlyExitModel) -> None:
    measure = make_measure(model)
    set_weights(measure.quantized, (6, 6, 6, 6))
    measure.block_risks(SETTINGS, [WIDTHS] * 4, path=False)
    assert measure.quantized.bit_settings.block_weights == BITS
    again = measure.block_risks(SETTINGS, [WIDTHS] * 4, path=False)
    assert measure.quantized.bit_settings.block_weights == BITS
    assert np.array_equal(again.noise, measure.block_risks(SETTINGS, [WIDTHS] * 4, path=False).noise)


@pytest.mark.parametrize("path", [False, True])
def test_without_room_for_the_references_outputs(
    model: EarlyExitModel, path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[list[np.ndarray]] = []
    one_batch = 16 * 17 * 32 * 4 * 4  # images x tokens x width x blocks x bytes
    for room in (8 << 30, one_batch + 1, 0):
        monkeypatch.setattr(measure_module, "spare_bytes", lambda device, room=room: room)
        measure = make_measure(model, scored=20)
        trace = measure.trace(SETTINGS)
        risks_found = measure.block_risks(SETTINGS, [WIDTHS] * 4, path)
        answers.append([trace.drift, trace.noise, trace.float_loss, risks_found.drift, risks_found.noise])
    assert len(measure._reference_blocks) == 0
    for other in answers[1:]:
        assert all(np.array_equal(one, two) for one, two in zip(answers[0], other, strict=True))


def test_references_outputs_are_computed_once_a_question(
    model: EarlyExitModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are not kept, one pass of the reference must do for all blocks and widths."""
    monkeypatch.setattr(measure_module, "spare_bytes", lambda device: 0)
    measure, calls = make_measure(model), 0
    measure.trace(SETTINGS)

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    handle = measure.reference.backbone.blocks[0].register_forward_hook(count)
    measure.block_risks(SETTINGS, [WIDTHS] * 4, path=False)
    handle.remove()
    assert calls == len(measure.batches)


def test_nothing_is_kept_where_no_blocks_are_scored(model: EarlyExitModel) -> None:
    without, usual = make_measure(model, scored=0), make_measure(model)
    one, other = without.trace(SETTINGS), usual.trace(SETTINGS)
    assert np.array_equal(one.noise, other.noise)
    assert np.array_equal(one.confidence, other.confidence)
    assert (without._inputs, len(usual._inputs)) == ([], len(usual.batches))
    with pytest.raises(AssertionError, match="without images to score blocks on"):
        without.block_risks(SETTINGS, [WIDTHS] * 4, path=False)


def test_passes_are_counted(model: EarlyExitModel) -> None:
    measure = make_measure(model, scored=20)
    assert measure.passes == 0
    measure.trace(SETTINGS)
    assert measure.passes == 1
    measure.block_risks(SETTINGS, [(3, 4, 5)] * 4, path=False)  # two other widths on half of the images
    assert measure.passes == pytest.approx(1 + 1)
    measure.block_risks(by_block((4, 4, 4, 4)), [(5,)] * 4, path=False)  # at other bits: a pass first
    assert measure.passes == pytest.approx(1 + 1 + 1 + 0.5)
    measure.block_risks(by_block((4, 4, 4, 4)), [(5,)] * 4, path=True)  # 4 + 3 + 2 + 1 blocks of 4
    assert measure.passes == pytest.approx(3.5 + 0.5 * 10 / 4)


def test_the_cost_models_bits(model: EarlyExitModel) -> None:
    images = make_measure(model).batches[0][0]
    fitted = quantize(model, images, "rtn", QuantSettings(widths=(3, 5)))
    set_weights(fitted, BITS)
    plain = fitted.bit_settings
    assert plain.blocks == by_block(BITS).blocks
    assert (plain.patch, plain.classifier) == ((32, 32), (32, 32))
    assert (plain.head, plain.merge) == ((4, 4), (4, 4))
    settings = QuantSettings(act_bits=6, patch=Bits(8, None), heads=Bits(5, 5), classifier=Bits(4, 4))
    other = quantize(model, images, "rtn", settings).bit_settings
    assert (other.patch, other.classifier, other.head, other.merge) == ((8, 32), (4, 4), (5, 5), (4, 6))


def test_equal_questions_get_equal_answers(model: EarlyExitModel) -> None:
    measure = make_measure(model)
    first, risk = measure.trace(SETTINGS), measure.block_risks(SETTINGS, [WIDTHS] * 4, path=True)
    measure.trace(by_block((6, 6, 6, 6)))
    again, risk_again = measure.trace(SETTINGS), measure.block_risks(SETTINGS, [WIDTHS] * 4, path=True)
    assert np.array_equal(first.noise, again.noise)
    assert np.array_equal(first.confidence, again.confidence)
    assert np.array_equal(risk.drift, risk_again.drift)
