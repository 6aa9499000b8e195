"""Moves: single steps of one width, and exchanges of two."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq.moves import Move, propose_moves
from maqee.apq.options import SearchOptions
from maqee.apq.units import ATTENTION, Space, Unit, find_space
from maqee.widths import BitPair
from tests.apq.fake_joint import AdditiveModel

MODEL = AdditiveModel(exits=(2,))
OPTIONS = SearchOptions(bit_min=3, bit_max=5, act_min=3, act_max=5)
SPACE = find_space(MODEL.parts, 2, OPTIONS)
COSTS = SPACE.costs(MODEL.parts, np.ones(2))
UNIFORM = SPACE.chosen(MODEL.start)


def propose(chosen: tuple[BitPair, ...], run_before: list[tuple[BitPair, ...]], space: Space = SPACE) -> Move | None:
    risks = [
        np.array([MODEL.error(unit, pair) for pair in pairs])
        for unit, pairs in zip(space.units, space.pairs, strict=True)
    ]
    return propose_moves(space, chosen, risks, COSTS, run_before)


def changes(before: tuple[BitPair, ...], after: tuple[BitPair, ...]) -> list[tuple[Unit, BitPair, BitPair]]:
    rows = zip(SPACE.units, before, after, strict=True)
    return [(unit, one, other) for unit, one, other in rows if one != other]


@given(st.data())
def test_one_step_or_one_up_and_one_down(data: st.DataObject) -> None:
    chosen = tuple(data.draw(st.sampled_from(pairs)) for pairs in SPACE.pairs)
    move = propose(chosen, [chosen])
    assert move is not None
    changed = changes(chosen, move.chosen)
    assert len(changed) in (1, 2)
    signs = []
    for unit, one, other in changed:
        apart = (other[0] - one[0], other[1] - one[1])
        allowed = {(1, 1), (-1, -1)} if unit.layer == ATTENTION else {(1, 0), (-1, 0), (0, 1), (0, -1)}
        assert apart in allowed
        assert other in SPACE.pairs[SPACE.units.index(unit)]
        signs.append(sum(apart) > 0)
        assert f"{unit.name} {one[0]}/{one[1]} to {other[0]}/{other[1]}" in move.words
    assert len(set(signs)) == len(signs)


def test_the_most_promising_first_by_hand() -> None:
    """Two layers: one minds its activations very much, the other nothing at all."""
    space = Space((Unit("layer", 1, "fc1"), Unit("layer", 1, "fc2")), (((4, 4), (4, 5)), ((4, 4), (4, 3))), 0)
    risks = [np.array([5.0, 0.0]), np.array([0.0, 1.0])]
    costs = [np.array([16.0, 20.0]), np.array([16.0, 12.0])]
    now = ((4, 4), (4, 4))
    move = propose_moves(space, now, risks, costs, [now])
    assert move == Move(((4, 5), (4, 3)), "block 1 fc1 4/4 to 4/5, block 1 fc2 4/4 to 4/3")
    after = propose_moves(space, now, risks, costs, [now, ((4, 5), (4, 3))])
    assert after is not None  # the rate is 3/4 a unit: both singles are worth 2 less than nothing
    assert after.chosen in (((4, 5), (4, 4)), ((4, 4), (4, 3)))
    every = [now, ((4, 5), (4, 3)), ((4, 5), (4, 4)), ((4, 4), (4, 3))]
    assert propose_moves(space, now, risks, costs, every) is None


def test_never_the_same_twice_and_new_steps_first() -> None:
    run_before = [UNIFORM]
    steps: list[tuple[Unit, BitPair]] = []
    for _ in range(6):
        move = propose(UNIFORM, run_before)
        assert move is not None
        assert move.chosen not in run_before
        taken = [(unit, other) for unit, _, other in changes(UNIFORM, move.chosen)]
        assert not set(taken) & set(steps)  # while there are steps that were no part of a move
        steps += taken
        run_before.append(move.chosen)


def test_the_end() -> None:
    space = find_space(MODEL.parts, 2, SearchOptions(bit_min=4, bit_max=4, act_min=4, act_max=4))
    costs = space.costs(MODEL.parts, np.ones(2))
    assert propose_moves(space, UNIFORM, [np.zeros(1)] * 10, costs, [UNIFORM]) is None


def test_deterministic_also_where_everything_is_equal() -> None:
    risks = [np.zeros(len(pairs)) for pairs in SPACE.pairs]
    found = {propose_moves(SPACE, UNIFORM, risks, COSTS, [UNIFORM]) for _ in range(3)}
    assert len(found) == 1
