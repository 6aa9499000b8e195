"""Errors of units, weighed by where samples leave."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from maqee.apq.options import SearchOptions
from maqee.apq.unit_errors import UnitErrors, unit_risks
from maqee.apq.units import Space, Unit, find_space
from maqee.errors import MaqeeError
from tests.apq.fake_joint import AdditiveModel

OPTIONS = SearchOptions(bit_min=3, bit_max=4, act_min=3, act_max=5, search_bits="blocks")
FC1 = UnitErrors("block 1 fc1", ((0.4, 0.2), (0.0, 0.0)), ((0.8, 0.6), (0.1, 0.3), (0.0, 0.0)))


def test_weights_and_activations_add_up() -> None:
    np.testing.assert_allclose(FC1.of((3, 4), OPTIONS), [0.5, 0.5])
    np.testing.assert_allclose(FC1.of((4, 3), OPTIONS), [0.8, 0.6])
    np.testing.assert_allclose(FC1.of((4, 5), OPTIONS), [0.0, 0.0])


def test_before_a_training_errors_of_weights_count_a_tenth() -> None:
    before = replace(OPTIONS, before_training=True)
    np.testing.assert_allclose(FC1.of((3, 4), before), [0.1 + 0.1 * 0.4, 0.3 + 0.1 * 0.2])
    np.testing.assert_allclose(FC1.of((4, 3), before), [0.8, 0.6])


def test_attention_has_no_weights() -> None:
    products = UnitErrors("block 1 attention", (), FC1.activations)
    np.testing.assert_allclose(products.of((4, 4), OPTIONS), [0.1, 0.3])


def test_risks_are_errors_where_samples_leave() -> None:
    model = AdditiveModel(exits=(1, 2))
    space = find_space(model.parts, 2, OPTIONS)
    errors = model.unit_errors(space.widest(model.start), space, OPTIONS, passes=1)
    risks = unit_risks(space, errors, (0.25, 0.75), OPTIONS)
    for unit, pairs, row in zip(space.units, space.pairs, risks, strict=True):
        share = 1.0 if unit.number == 1 else 0.75  # who leaves at block 1 never sees block 2
        wanted = [share * (model.error(unit, pair) - model.error(unit, pairs[-1])) for pair in pairs]
        np.testing.assert_allclose(row, wanted, atol=1e-12)
    assert risks[space.units.index(Unit("layer", 2, "fc2"))][-1] == 0


def test_a_head_matters_to_those_who_leave_there() -> None:
    head = UnitErrors("exit head 2", ((0.0, 0.4, 0.0), (0.0, 0.0, 0.0)), ((0.0, 0.8, 0.0),) * 3)
    space = Space((Unit("head", 1),), (((3, 3), (4, 5)),), 2)
    [risks] = unit_risks(space, [head], (0.5, 0.25, 0.25), OPTIONS)
    np.testing.assert_allclose(risks, [0.25 * (0.4 + 0.8), 0.25 * 0.8])


def test_a_head_that_nobody_needs_now_still_matters() -> None:
    head = UnitErrors("exit head 1", ((0.4, 0.0), (0.0, 0.0)), ((0.8, 0.0),) * 3)
    layer = UnitErrors("block 1 fc1", head.weights, head.activations)
    pairs = ((3, 3), (4, 5))
    space = Space((Unit("layer", 1, "fc1"), Unit("head", 0)), (pairs, pairs), 1)
    in_block, in_head = unit_risks(space, [layer, head], (0.0, 1.0), OPTIONS)
    assert in_block.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(in_head, [0.05 * (0.4 + 0.8), 0.05 * 0.8])


def test_errors_of_other_units() -> None:
    model = AdditiveModel(exits=(1, 2))
    space = find_space(model.parts, 2, OPTIONS)
    with pytest.raises(MaqeeError, match="of other units: start the search again"):
        unit_risks(space, [FC1], (0.5, 0.5), OPTIONS)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number(wrong: float) -> None:
    with pytest.raises(MaqeeError, match="fewer bits of block 2 qkv cause are not finite numbers"):
        UnitErrors("block 2 qkv", ((0.0, wrong),), ((0.0, 0.0),))
