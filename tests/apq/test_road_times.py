"""Measured time as the cost, in place of bit operations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maqee.apq import Budget, SearchOptions, search
from maqee.apq.choose import choose_policy
from maqee.apq.figures import exit_bops, exit_costs, lone_exit_costs, policy_figures
from maqee.apq.objective import least_cost_problem
from maqee.apq.road_times import RoadTimes
from maqee.apq.timed_pairs import TimedPair, times_at
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError
from maqee.policy import NEVER
from maqee.widths import BitSettings
from tests.apq.fake_joint import AdditiveModel
from tests.apq.makers import make_trace

ROADS = (2.0, 3.0, 5.0)


def make_times(**changes: Any) -> RoadTimes:
    values: dict[str, Any] = {
        "model": "small",
        "engine": "torch",
        "device": "cpu with 1 thread",
        "batch": 8,
        "repeats": 5,
        "exit_blocks": (2, 4, 6),
        "road_ms": ROADS,
        "shares": (0.2, 0.3, 0.5),
        "environment": {},
    }
    return RoadTimes(**(values | changes))


class TimedModel(AdditiveModel):
    """The same model on an engine that takes some time for each road."""

    ms: tuple[float, ...] = ()

    def trace(self, bits: BitSettings) -> Trace:
        return replace(super().trace(bits), exit_ms=self.ms)


def timed_model() -> TimedModel:
    model = TimedModel()
    model.ms = tuple(float(place + 1) for place in range(len(model.exits)))
    return model


def test_leaving_takes_all_roads_so_far() -> None:
    assert make_times().exit_ms == (2.0, 5.0, 10.0)
    assert make_times().words == "ms on torch, cpu with 1 thread, batch 8"


def test_bits_that_are_free_unless_somebody_says_otherwise() -> None:
    usual, own = make_times().options(), make_times().options(SearchOptions(bit_min=4, bit_max=4, alpha=0.5))
    assert (usual.bit_min, usual.bit_max, usual.act_min, usual.act_max) == (6, 6, 8, 8)
    assert (own.bit_min, own.bit_max, own.act_max, own.alpha) == (4, 4, 8, 0.5)
    assert usual.exit_ms == own.exit_ms == (2.0, 5.0, 10.0)
    assert usual.head_ms is None
    assert make_times(head_ms=(0.5, 1.0)).options().head_ms == (0.5, 1.0)


PAIRS = (
    TimedPair("W5A7", (2.0, 5.0, 10.0)),
    TimedPair("W4A4", (2.1, 5.1, 10.1)),
    TimedPair("W6A8", (2.4, 6.0, 12.0)),
)


def test_pairs_with_times_of_their_own() -> None:
    """Within what ranges allow; the ranges are then no wider than these."""
    times = make_times(pairs=PAIRS)
    assert times.ranges == ((4, 6), (4, 8))
    assert make_times().ranges == ((6, 6), (8, 8))
    usual, narrow = times.options(), times.options(SearchOptions(bit_max=4))
    assert usual.timed_pairs == PAIRS
    assert (usual.bit_min, usual.bit_max, usual.act_min, usual.act_max) == (4, 6, 4, 8)
    assert narrow.timed_pairs == PAIRS[1:2]
    assert (narrow.bit_min, narrow.act_min, narrow.act_max, narrow.exit_ms) == (4, 4, 4, PAIRS[1].exit_ms)
    with pytest.raises(
        MaqeeError, match=r"None of the timed pairs \(W5A7, W4A4, W6A8\) .* 3 to 3 of weights and 3 to 8"
    ):
        times.options(SearchOptions(bit_max=3))
    with pytest.raises(MaqeeError, match="timed_pairs: exit_ms must be that of the first pair"):
        replace(usual, exit_ms=(1.0, 2.0, 3.0))
    bits = BitSettings.uniform(6, 8, 6)
    assert times_at(usual, bits) == PAIRS[2].exit_ms
    assert times_at(usual, bits.with_weights([5] * 6)) == PAIRS[0].exit_ms  # none of the pairs
    with pytest.raises(MaqeeError, match="timed_pairs: 'W5' must be like W5A7"):
        replace(usual, timed_pairs=(TimedPair("W5", PAIRS[0].exit_ms),))
    with pytest.raises(MaqeeError, match="timed_pairs: W5A7 is not within the ranges"):
        replace(usual, bit_min=6)
    assert "timed_pairs" in usual.to_json()
    assert "timed_pairs" not in SearchOptions().to_json()


def test_there_and_back(tmp_path: Path) -> None:
    make_times().save(tmp_path / "times.json")
    assert RoadTimes.load(tmp_path / "times.json") == make_times()
    older = json.loads((tmp_path / "times.json").read_text())
    del older["head_ms"]  # what closing an exit saves was not measured
    (tmp_path / "times.json").write_text(json.dumps(older))
    assert RoadTimes.load(tmp_path / "times.json") == make_times()
    make_times(head_ms=(0.5, 1.0)).save(tmp_path / "times.json")
    assert RoadTimes.load(tmp_path / "times.json").head_ms == (0.5, 1.0)
    make_times(pairs=PAIRS).save(tmp_path / "times.json")
    assert RoadTimes.load(tmp_path / "times.json") == make_times(pairs=PAIRS)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match=r"2 times for 3 exits"):
        make_times(road_ms=(1.0, 2.0))
    with pytest.raises(MaqeeError, match="must all be more than 0"):
        make_times(road_ms=(1.0, 0.0, 2.0))
    with pytest.raises(MaqeeError, match="head_ms: 3 times: give one for each early exit"):
        make_times(head_ms=(1.0, 1.0, 1.0))
    with pytest.raises(MaqeeError, match=r"head_ms: \[-1\.0, 1\.0\] must all be at least 0"):
        make_times(head_ms=(-1.0, 1.0))
    with pytest.raises(MaqeeError, match=r"head_ms: 1 times: .* with exit_ms beside them"):
        SearchOptions(head_ms=(1.0,))
    with pytest.raises(MaqeeError, match=r"after blocks \[2, 4, 6\], this one has them after \[3, 6\]: profile"):
        make_times().check_fits((3, 6))
    (tmp_path / "plan.json").write_text('{"format": "maqee-plan"}')
    with pytest.raises(MaqeeError, match="this is no maqee times"):
        RoadTimes.load(tmp_path / "plan.json")
    with pytest.raises(MaqeeError, match="bits: where measured time is the cost"):
        SearchOptions(exit_ms=(1.0, 2.0), bits="weights")


def test_cost_of_a_policy_by_hand() -> None:
    plain = make_trace()
    ms = tuple(float(place + 1) for place in range(plain.exits + 1))
    timed = replace(plain, exit_ms=ms)
    assert exit_costs(timed).tolist() == list(ms)
    assert np.array_equal(exit_bops(timed), exit_costs(plain))
    everybody = policy_figures(timed, (NEVER,) * plain.exits)
    first = policy_figures(timed, (0.0,) * plain.exits)
    assert (everybody.ms, first.ms) == (ms[-1], ms[0])
    assert (everybody.cost, policy_figures(plain, (NEVER,) * plain.exits).cost) == (ms[-1], everybody.bops)


def test_closing_an_exit_saves_its_time() -> None:
    """Exits take 1, 2, 3 and full depth 4 ms, heads 0.25, 0.5 and 0.125 of that."""
    trace = replace(make_trace(), exit_ms=(1.0, 2.0, 3.0, 4.0), head_ms=(0.25, 0.5, 0.125))
    assert policy_figures(trace, (NEVER,) * 3).ms == 4 - 0.875
    assert policy_figures(trace, (NEVER, 0.0, 0.5)).ms == 2 - 0.25
    assert policy_figures(trace, (1.0, NEVER, 1.0)).ms == 4 - 0.5
    assert lone_exit_costs(trace).tolist() == [1, 1.75, 2.25, 3.125]
    problem = least_cost_problem(trace, 0.0)
    assert problem.evaluate((NEVER, 0.0, 0.5)) == pytest.approx((0.0, 1.75))


def test_times_are_stored_with_a_trace(tmp_path: Path) -> None:
    plain = make_trace()
    ms = tuple(float(place + 1) for place in range(plain.exits + 1))
    replace(plain, exit_ms=ms).save(tmp_path / "timed.safetensors")
    assert Trace.load(tmp_path / "timed.safetensors").exit_ms == ms
    assert Trace.load(tmp_path / "timed.safetensors").head_ms is None
    heads = (0.5,) * plain.exits
    replace(plain, exit_ms=ms, head_ms=heads).save(tmp_path / "heads.safetensors")
    assert Trace.load(tmp_path / "heads.safetensors").head_ms == heads
    with pytest.raises(MaqeeError, match="exit_ms: 1 times"):
        replace(plain, exit_ms=(1.0,))
    with pytest.raises(MaqeeError, match="head_ms: 1 times"):
        replace(plain, exit_ms=ms, head_ms=(1.0,))


def test_the_most_bits_are_taken_because_they_are_free() -> None:
    """And only thresholds are searched: two passes, whatever is asked."""
    model = timed_model()
    options = SearchOptions(exit_ms=model.ms, bit_max=6, act_max=8)
    found = search(model, options, Budget(max_ms=0.7 * model.ms[-1]))
    assert {pair for block in found.best.bits.blocks for pair in block} == {(6, 8), (8, 8)}  # attention: A x A
    assert found.best.figures.ms is not None
    assert found.best.figures.ms <= 0.7 * model.ms[-1] + 1e-9
    assert found.best.excess == 0
    assert len(model.traced) <= 3


class PairModel(AdditiveModel):
    """The same model on an engine that has times for pairs of widths."""

    options = SearchOptions()

    def trace(self, bits: BitSettings) -> Trace:
        return replace(super().trace(bits), exit_ms=times_at(self.options, bits))


@pytest.mark.parametrize(("middle", "wide", "chosen"), [(1.5, 1.6, (5, 7)), (1.5, 1.01, (6, 8))])
def test_of_timed_pairs_the_best_is_taken(middle: float, wide: float, chosen: tuple[int, int]) -> None:
    """Not the fastest one, which is too coarse. Each is run once."""
    model = PairModel()
    roads = [float(place + 1) for place in range(len(model.exits))]
    pairs = tuple(
        TimedPair(bits, tuple(factor * ms for ms in roads))
        for bits, factor in (("W3A3", 1.0), ("W5A7", middle), ("W6A8", wide))
    )
    model.options = SearchOptions(timed_pairs=pairs, exit_ms=pairs[0].exit_ms)
    target = model.trace(BitSettings.uniform(6, 8, model.depth)).full_metric - 0.01
    model.traced.clear()
    budget = Budget(min_metric=target, target_on="calibration")
    found = search(model, model.options, budget)
    assert {block.fc1 for block in found.best.bits.blocks} == {chosen}
    assert found.best.figures.metric >= target
    assert len(model.traced) == 3
    least = min(
        choose_policy(trace, budget, found.state.scales, model.options).objective
        for trace in [model.trace(BitSettings.uniform(*pair.widths, model.depth)) for pair in pairs[1:]]
    )
    assert found.best.objective == pytest.approx(least)


def test_least_time_at_a_metric_is_not_the_fewest_bops() -> None:
    model = timed_model()
    options = SearchOptions(exit_ms=model.ms)
    target = model.trace(model.start).float_metric - 0.05
    found = search(model, options, Budget(min_metric=target, target_on="calibration")).best
    assert found.figures.metric >= target
    assert found.objective == pytest.approx(found.figures.cost / model.ms[-1])


def test_units_are_not_mixed_up() -> None:
    model = timed_model()
    timed, plain = SearchOptions(exit_ms=model.ms), SearchOptions()
    with pytest.raises(MaqeeError, match=r"max_bops: measured time is the cost here"):
        search(model, timed, Budget(max_bops=1e9))
    with pytest.raises(MaqeeError, match=r"like: measured time is the cost here"):
        search(model, timed, Budget(like="W4A4"))
    with pytest.raises(MaqeeError, match=r"max_ms: the cost is BOPs here"):
        search(AdditiveModel(), plain, Budget(max_ms=1.0))
    with pytest.raises(MaqeeError, match=r"max_ms: 0\.5 ms cannot be met: everybody leaving at the cheapest exit"):
        search(model, timed, Budget(max_ms=0.5))
    with pytest.raises(MaqeeError, match="give one of them"):
        Budget(max_ms=1.0, max_bops=1.0)
