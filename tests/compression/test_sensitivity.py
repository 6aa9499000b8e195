"""Errors of units on a real model, against running the whole network anew for every change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from maqee.apq import SearchOptions
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import Space, Unit, find_space
from maqee.compression import ModelMeasure
from maqee.compression import model_measure as measure_module
from maqee.compression.sensitivity import (
    LEAST_IMAGES,
    error_of,
    error_runs,
    measure_unit_errors,
    relative_error,
    touched_exits,
)
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.quant import Bits, QuantSettings, quantize
from maqee.widths import BitSettings
from tests.compression.makers import TASK, batches_of, digits
from tests.helpers import randomize
from tests.quant.makers import pictures

OPTIONS = SearchOptions(bit_min=3, bit_max=4, act_min=4, act_max=5, search_bits="all")
SETTINGS = QuantSettings(
    widths=(3, 4), act_widths=(4, 5), switched=("block", "head", "patch", "classifier"),
    patch=Bits(4, 5), classifier=Bits(4, 5),
)  # fmt: skip


def digits_measure(model: EarlyExitModel, settings: QuantSettings = SETTINGS, count: int = 20) -> ModelMeasure:
    batches = batches_of(digits("calibration", count), model, 8)
    return ModelMeasure(model, quantize(model, batches[0][0], "rtn", settings), batches, TASK, "hash")


def swin_measure() -> ModelMeasure:
    """Mergings between stages, heads that read several blocks."""
    network = randomize(add_exits(load_backbone("test-swin"), "lgvit"))
    assert isinstance(network, EarlyExitModel)
    images, targets = pictures(6), torch.arange(6)
    batches = [(images[:4], targets[:4]), (images[4:], targets[4:])]
    return ModelMeasure(network, quantize(network, images[:4], "rtn", SETTINGS), batches, TASK, "")


def space_and_base(measure: ModelMeasure, options: SearchOptions = OPTIONS) -> tuple[Space, BitSettings]:
    space = find_space(measure.parts, measure.depth, options, measure.can_switch)
    return space, space.widest(measure.start)


def measured(measure: ModelMeasure, options: SearchOptions = OPTIONS) -> tuple[UnitErrors, ...]:
    space, base = space_and_base(measure, options)
    images = [batch for batch, _ in measure.batches]
    return measure_unit_errors(measure.reference, measure.quantized, images, base, space, options, TASK)


@torch.inference_mode()
def whole_network(measure: ModelMeasure, bits: BitSettings, options: SearchOptions) -> np.ndarray:
    """Mean error at every exit, all of the network being run."""
    measure.quantized.set_widths(bits)
    error = error_of(TASK, options)
    sums = np.zeros(len(measure.exit_blocks))
    for images, _ in measure.batches:
        wanted, got = (network.forward_all(images).outputs for network in (measure.reference, measure.model))
        sums += [float(error(one, other).double().sum()) for one, other in zip(got, wanted, strict=True)]
    return sums / sum(len(images) for images, _ in measure.batches)


@pytest.mark.parametrize(
    "options",
    [OPTIONS, replace(OPTIONS, signal="divergence", search_bits="blocks"), replace(OPTIONS, grain="block")],
    ids=["all", "divergence", "blocks"],
)
@pytest.mark.parametrize("network", ["digits", "swin"])
def test_as_if_the_whole_network_was_run(model: EarlyExitModel, network: str, options: SearchOptions) -> None:
    measure = digits_measure(model) if network == "digits" else swin_measure()
    space, base = space_and_base(measure, options)
    found = measured(measure, options)
    assert space.chosen(measure.quantized.bit_settings) == space.chosen(base)  # left as it was found
    zero = whole_network(measure, base, options)
    for unit, errors in zip(space.units, found, strict=True):
        assert errors.unit == unit.name
        weight, activation = unit.pair(base)
        changes = [((bits, activation), row) for bits, row in zip((3, 4), errors.weights, strict=False)]
        if unit.layer == "attention":
            assert errors.weights == ()
            changes = [((bits, bits), row) for bits, row in zip((4, 5), errors.activations, strict=True)]
        else:
            changes += [((weight, bits), row) for bits, row in zip((4, 5), errors.activations, strict=True)]
        for pair, row in changes:
            anew = whole_network(measure, unit.with_pair(base, pair, space.heads), options) - zero
            np.testing.assert_allclose(row, anew, rtol=1e-6, atol=1e-9)


def test_nothing_at_the_base_and_nothing_in_front(model: EarlyExitModel) -> None:
    measure = digits_measure(model)
    space, _ = space_and_base(measure)
    for unit, errors in zip(space.units, measured(measure), strict=True):
        assert not any(errors.activations[-1])
        assert not errors.weights or not any(errors.weights[-1])
        touched = touched_exits(unit, measure.exit_blocks)
        fewest = np.array(errors.activations[0])
        assert (fewest[touched] != 0).all(), unit.name
        assert (np.delete(fewest, touched) == 0).all(), unit.name


def test_touched_exits() -> None:
    blocks = (1, 2, 4)
    assert touched_exits(Unit("layer", 1, "qkv"), blocks) == [0, 1, 2]
    assert touched_exits(Unit("layer", 2, "qkv"), blocks) == [1, 2]
    assert touched_exits(Unit("block", 3), blocks) == [2]
    assert touched_exits(Unit("head", 1), blocks) == [1]
    assert touched_exits(Unit("patch"), blocks) == [0, 1, 2]
    assert touched_exits(Unit("classifier"), blocks) == [2]
    assert touched_exits(Unit("layer", 1, "qkv"), (4,)) == [0]  # a model without exits


def test_relative_error_by_hand() -> None:
    wanted, output = torch.tensor([[1.0, 3.0], [0.0, 4.0]]), torch.tensor([[2.0, 3.0], [0.0, 0.0]])
    assert relative_error(output, wanted).tolist() == [1 / 2, 16 / 8]
    maps = wanted[:, :, None, None].expand(-1, -1, 2, 2)  # the same four times over: (batch, classes, height, width)
    assert relative_error(output[:, :, None, None].expand_as(maps), maps).tolist() == [1 / 2, 16 / 8]


def test_runs_by_hand() -> None:
    """Block 1 of two is run with all behind it, block 2 alone; heads and classifier run no block."""
    units = (Unit("block", 1), Unit("layer", 2, "attention"), Unit("head", 0), Unit("patch"))
    both = ((3, 3), (3, 4), (4, 3), (4, 4))
    space = Space(units, (both, ((3, 3), (4, 4)), both, both), 1)
    assert error_runs(space, 2) == 2 * 1 + 1 * 0.5 + 0 + 2 * 1


@pytest.mark.parametrize(("passes", "images"), [(1.0, LEAST_IMAGES), (15.0, 12), (1000.0, 20)])
def test_images_follow_the_passes(
    model: EarlyExitModel, monkeypatch: pytest.MonkeyPatch, passes: float, images: int
) -> None:
    measure = digits_measure(model)
    options = SearchOptions(bit_min=3, bit_max=4, act_min=4, act_max=5)
    space, base = space_and_base(measure, options)
    runs = error_runs(space, 4)
    assert runs == (4 * 2 + 1) * 2.5
    used: list[int] = []
    real = measure_unit_errors

    def counting(reference: object, quantized: object, batches: Sequence[Tensor], *rest: object) -> object:
        used.append(sum(len(batch) for batch in batches))
        return real(reference, quantized, batches, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(measure_module, "measure_unit_errors", counting)
    measure.unit_errors(base, space, options, passes)
    # 22.5 runs and the pass at the base: 15 passes of 20 images are enough for 12 images
    assert used == [images]
    assert measure.passes == pytest.approx((runs + 1) * images / 20)


def test_fixed_layers_cannot_be_switched(model: EarlyExitModel) -> None:
    settings = QuantSettings(
        widths=(3, 4), act_widths=(4, 5), switched=("block", "head"), overrides=((r"blocks\.1\.mlp\.fc2", Bits(6, 6)),)
    )
    measure = digits_measure(model, settings, count=8)
    assert not measure.can_switch(Unit("layer", 2, "fc2"))
    assert measure.can_switch(Unit("layer", 1, "fc2"))
    assert measure.can_switch(Unit("layer", 2, "attention"))
    assert measure.can_switch(Unit("head", 1))
    assert not measure.can_switch(Unit("patch"))
    assert not measure.can_switch(Unit("classifier"))
    space, base = space_and_base(measure)
    assert Unit("layer", 2, "fc2") not in space.units
    measure.quantized.set_widths(base)
    assert measure.quantized.bit_settings.blocks[1].fc2 == (6, 6)
    assert measure.quantized.bit_settings.blocks[0].fc2 == (4, 5)
