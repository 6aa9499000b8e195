"""Errors of units on a real model, against running the whole network anew for every width."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from maqee.apq import SearchOptions
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import ATTENTION, Space, Unit, find_space
from maqee.compression import ModelMeasure
from maqee.compression import model_measure as measure_module
from maqee.compression.sensitivity import LEAST_IMAGES, error_runs, measure_unit_errors, spread, squared_error
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.quant import Bits, QuantSettings, quantize
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.widths import BitPair, BitSettings
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
    return measure_unit_errors(measure.quantized, images, base, space, options, TASK)


def modules_of(measure: ModelMeasure, unit: Unit) -> list[QuantLayer | QuantAttend]:
    """The layers of a unit by their names in the model."""
    block = rf"blocks\.{unit.number - 1}\."
    short = {"qkv": "qkv", "attention": "attend", "projection": "proj", "fc1": "fc1", "fc2": "fc2"}
    pattern = {
        "layer": rf"{block}.*{short.get(unit.layer)}$",
        "block": block,
        "head": rf"^heads\.{unit.number}\.",
        "patch": r"embedding\.patch$",
        "classifier": r"backbone\.head\.",
    }[unit.kind]
    modules: list[QuantLayer | QuantAttend] = [*measure.quantized.layers.values(), *measure.quantized.attends.values()]
    found = [module for module in modules if re.search(pattern, module.name)]
    assert found
    return found


@torch.inference_mode()
def whole_network(measure: ModelMeasure, unit: Unit, bits: BitSettings, options: SearchOptions) -> np.ndarray:
    """Error at every exit with one unit quantized and all else in float, all of the network being run."""
    base = space_and_base(measure, options)[1]
    errors, sizes = np.zeros(len(measure.exit_blocks)), np.zeros(len(measure.exit_blocks))
    for images, _ in measure.batches:
        measure.quantized.set_widths(base)
        with measure.quantized.in_float():
            wanted = measure.model.forward_all(images).outputs
        measure.quantized.set_widths(bits)
        with measure.quantized.in_float():
            for module in modules_of(measure, unit):
                module.enabled = True
            got = measure.model.forward_all(images).outputs
        for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
            if options.signal == "divergence":
                errors[index] += float(TASK.distillation(one, other, 1.0).double().sum())
                sizes[index] += len(images)
            else:
                errors[index] += float((one - other).square().double().sum())
                sizes[index] += float((other - other.mean(dim=1, keepdim=True)).square().double().sum())
    return errors / sizes


@pytest.mark.parametrize(
    "options",
    [OPTIONS, replace(OPTIONS, signal="divergence", search_bits="blocks"), replace(OPTIONS, grain="block")],
    ids=["all", "divergence", "blocks"],
)
@pytest.mark.parametrize("network", ["digits", pytest.param("swin", marks=pytest.mark.slow)])
def test_as_if_the_whole_network_was_run(model: EarlyExitModel, network: str, options: SearchOptions) -> None:
    measure = digits_measure(model) if network == "digits" else swin_measure()
    space, base = space_and_base(measure, options)
    found = measured(measure, options)
    assert space.chosen(measure.quantized.bit_settings) == space.chosen(base)
    for unit, errors in zip(space.units, found, strict=True):

        def anew(pair: BitPair, unit: Unit = unit) -> np.ndarray:
            return whole_network(measure, unit, unit.with_pair(base, pair, space.heads), options)

        assert errors.unit == unit.name
        few, most = (anew((bits, bits) if unit.layer == ATTENTION else (4, bits)) for bits in (4, 5))
        # Fewer bits count as no better than more, whatever few images say.
        wanted = np.maximum([np.maximum(few, most), most], 0)
        np.testing.assert_allclose(errors.activations, wanted, rtol=1e-6, atol=1e-9)
        if unit.layer == ATTENTION:
            assert errors.weights == ()
        else:
            less = np.maximum(anew((3, 5)) - most, 0)
            np.testing.assert_allclose(errors.weights, [less, np.zeros_like(less)], rtol=1e-6, atol=1e-9)


def test_units_only_change_what_is_behind_them(model: EarlyExitModel) -> None:
    measure = digits_measure(model)
    space, _ = space_and_base(measure)
    found = dict(zip(space.units, measured(measure), strict=True))
    touched = {unit: (np.array(errors.activations[0]) != 0).tolist() for unit, errors in found.items()}
    assert measure.exit_blocks == (1, 2, 4)
    assert touched[Unit("patch")] == touched[Unit("layer", 1, "qkv")] == [True, True, True]
    assert touched[Unit("layer", 2, "attention")] == [False, True, True]
    assert touched[Unit("layer", 3, "fc2")] == touched[Unit("layer", 4, "fc2")] == [False, False, True]
    assert touched[Unit("head", 0)] == [True, False, False]  # heads only speak for themselves
    assert touched[Unit("head", 1)] == [False, True, False]
    assert touched[Unit("classifier")] == [False, False, True]


def test_everything_is_quantized_again_afterwards(model: EarlyExitModel) -> None:
    measure = digits_measure(model)
    measured(measure)
    quantized = measure.quantized
    assert all(module.enabled for module in (*quantized.layers.values(), *quantized.attends.values()))


def test_errors_by_hand() -> None:
    wanted, output = torch.tensor([[1.0, 3.0], [0.0, 4.0]]), torch.tensor([[2.0, 3.0], [0.0, 0.0]])
    assert squared_error(output, wanted).tolist() == [1, 16]
    assert spread(wanted).tolist() == [2, 8]
    maps = wanted[:, :, None, None].expand(-1, -1, 2, 2)  # the same four times over: (batch, classes, height, width)
    assert squared_error(output[:, :, None, None].expand_as(maps), maps).tolist() == [4, 64]
    assert spread(maps).tolist() == [8, 32]


def test_runs_by_hand() -> None:
    """Block 1 of two is run with all behind it, block 2 alone; a head counts as one block."""
    units = (Unit("block", 1), Unit("layer", 2, "attention"), Unit("head", 0), Unit("patch"))
    both = ((3, 3), (3, 4), (4, 3), (4, 4))
    space = Space(units, (both, ((3, 3), (4, 4)), both, both), 1)
    assert error_runs(space, 2) == 3 * 1 + 2 * 0.5 + 3 * 0.5 + 3 * 1


@pytest.mark.parametrize(("passes", "images"), [(1.0, LEAST_IMAGES), (21.6, 12), (1000.0, 20)])
def test_images_follow_the_passes(
    model: EarlyExitModel, monkeypatch: pytest.MonkeyPatch, passes: float, images: int
) -> None:
    measure = digits_measure(model)
    options = SearchOptions(bit_min=3, bit_max=4, act_min=4, act_max=5, search_bits="blocks")
    space, base = space_and_base(measure, options)
    runs = error_runs(space, 4)
    assert runs == (4 * 3 + 2) * 2.5
    used: list[int] = []
    real = measure_unit_errors

    def counting(quantized: object, batches: Sequence[Tensor], *rest: object) -> object:
        used.append(sum(len(batch) for batch in batches))
        return real(quantized, batches, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(measure_module, "measure_unit_errors", counting)
    measure.unit_errors(base, space, options, passes)
    # 35 runs and the pass in float: 21.6 passes of 20 images are just enough for 12 images
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
