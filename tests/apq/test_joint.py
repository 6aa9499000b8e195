"""The search for pairs of widths and thresholds, on a model whose best allocation is known."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from maqee.apq import ladder
from maqee.apq.budget import Budget
from maqee.apq.cost import bops
from maqee.apq.figures import exit_costs, policy_figures
from maqee.apq.loop import make_plan, most_steps, search
from maqee.apq.options import ERROR_PASSES, SearchOptions
from maqee.apq.search_state import SearchState
from maqee.apq.target_ladder import DROPS
from maqee.apq.units import Unit, find_space
from maqee.errors import MaqeeError
from maqee.widths import LAYERS, BitSettings, BlockWidths
from tests.apq.fake_joint import AdditiveModel

TWELVE = (4, 6, 8, 10, 12)
ASKED: dict[str, Budget] = {
    "nothing": Budget(),
    "max_bops": Budget(max_bops=90_000),
    "like": Budget(like="W4A4"),
    "like other widths": Budget(like="W5A4", max_drop=0.02),
    "min_metric": Budget(min_metric=0.7),
    "drop from float": Budget(max_drop=0.05),
    "drop from quantized": Budget(max_drop=0.02, drop_from="quantized"),
    "on calibration": Budget(min_metric=0.7, target_on="calibration"),
}


def best_of_all(model: AdditiveModel, options: SearchOptions, most_bops: float) -> float:
    """The least error at full depth of all allocations by block within a cost, one after the other."""
    space = find_space(model.parts, model.depth, options)
    found = []
    for chosen in itertools.product(*space.pairs):
        bits = space.settings(model.start, chosen)
        if bops(model.parts, bits) <= most_bops:
            found.append(model.total(bits, model.depth))
    return min(found)


@pytest.mark.parametrize("share", [1.0, 0.85, 1.2])
def test_without_exits_it_finds_the_best_allocation_of_all(share: float) -> None:
    model = AdditiveModel(exits=(3,), samples=400)
    options = SearchOptions(grain="block", bit_max=5, act_max=6)
    fixed = bops(model.parts, model.start) - sum(
        bops([part], model.start) for part in model.parts if part.kind in ("linear", "attention")
    )
    most = fixed + share * (bops(model.parts, model.start) - fixed)
    result = search(model, options, Budget(max_bops=most))
    assert result.best.figures.bops <= most * (1 + 1e-9)
    best = best_of_all(model, options, most * (1 + 1e-9))
    tried = [model.total(step.position.bits, 3) for step in result.state.history
             if step.position.figures.bops <= most * (1 + 1e-9)]  # fmt: skip
    assert min(tried) == pytest.approx(best, rel=1e-9)
    assert model.total(result.best.bits, 3) <= best * 1.02  # the metric of 400 samples sees no smaller difference


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_budgets(asked: str) -> None:
    budget, model = ASKED[asked], AdditiveModel()
    result = search(model, SearchOptions(), budget)
    state, best, target = result.state, result.best, result.state.target
    assert state.finished
    assert best.excess == 0
    result.check_met()
    assert policy_figures(result.trace, best.thresholds) == best.figures
    assert result.trace.bits == best.bits
    history = state.history
    found = [(step.best_excess, step.best_objective) for step in history]
    assert all(after <= before for before, after in pairwise(found))
    assert found[-1] == (best.excess, best.objective)
    assert [history[0].kind, history[-1].kind] == ["start", "last"]
    assert len(history) <= most_steps(model.depth, state.options)
    assert len(set(model.traced)) == len(model.traced)  # nothing is run twice
    if target.max_bops is not None:
        assert best.figures.bops <= target.max_bops * (1 + 1e-6)
    else:
        assert target.min_metric is not None
        plan = make_plan(result, exit_kinds=("mlp",) * 3, method="rtn", seed=0)
        assert plan.expected is not None
        metric = best.figures.metric if target.target_on == "calibration" else plan.expected.metric
        assert metric >= target.min_metric - (0 if target.target_on == "calibration" else 0.02)


def test_before_a_training_weights_get_fewer_bits_and_activations_more() -> None:
    budget, options, model = Budget(max_bops=90_000), SearchOptions(before_training=True), AdditiveModel()
    plain, result = search(AdditiveModel(), SearchOptions(), budget), search(model, options, budget)
    space = find_space(model.parts, model.depth, options)
    _, first, *judged, last = model.traced
    assert space.chosen(first) == space.chosen(model.start)  # the network as it is, at the start and at the end
    assert last == result.best.bits
    assert len(judged) > 4
    for bits in judged:  # as training will leave it
        pairs = zip(space.units, space.chosen(bits), strict=True)
        assert {pair[0] for unit, pair in pairs if unit.layer not in ("attention", None)} == {options.bit_max}
    best = result.best
    assert policy_figures(result.trace, best.thresholds) == best.figures
    assert best.figures.bops <= 90_000 * (1 + 1e-6)
    assert best.figures.average_bits < plain.best.figures.average_bits
    assert mean_activation(best.bits) > mean_activation(plain.best.bits)
    for step in result.state.history:
        assert step.position.figures.bops <= exit_costs(result.trace.at_bits(step.position.bits))[-1] * (1 + 1e-9)


def test_a_search_before_a_training_that_is_stopped_says_what_is_true_now() -> None:
    def stop(state: SearchState) -> None:
        if len(state.history) == 4:
            raise KeyboardInterrupt

    result = search(AdditiveModel(), SearchOptions(before_training=True), Budget(max_bops=90_000), on_step=stop)
    assert not result.state.finished
    assert result.best.figures == policy_figures(result.trace, result.best.thresholds)
    assert result.best.figures != result.state.best.figures


def mean_activation(bits: BitSettings) -> float:
    """Of all layers of all blocks."""
    return float(np.mean([getattr(block, layer)[1] for block in bits.blocks for layer in LAYERS]))


@pytest.mark.slow
def test_what_was_asked_becomes_numbers() -> None:
    model = AdditiveModel()
    space = find_space(model.parts, model.depth, SearchOptions())
    widest, start = model.trace(space.widest(model.start)), model.trace(model.start)

    def target(budget: Budget) -> Budget:
        return search(AdditiveModel(), SearchOptions(max_swaps=0), budget).state.target

    assert target(Budget()).min_metric == widest.full_metric - 0.01
    assert target(Budget(max_drop=0.05)).min_metric == start.float_metric - 0.05
    assert target(Budget(max_drop=0.02, drop_from="quantized")).min_metric == widest.full_metric - 0.02
    assert target(Budget(max_bops=90_000)).max_bops == 90_000
    like = target(Budget(like="W4A4"))
    assert (like.like, like.min_metric) == (None, None)
    assert like.max_bops is not None
    assert like.max_bops <= exit_costs(start)[-1]
    wider = target(Budget(like="W5A4")).max_bops
    assert wider is not None
    assert wider > like.max_bops


def test_better_than_uniform_at_its_cost() -> None:
    model = AdditiveModel()
    result = search(model, budget=Budget(like="W4A4"))
    start, most = result.state.history[0].position, result.state.target.max_bops
    assert most is not None
    assert start.figures.bops <= most
    assert result.best.figures.metric > start.figures.metric + 0.02
    assert result.best.figures.bops <= most * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        ({}, Budget(like="W4A4")),
        ({"frontier": True, "search_bits": "all"}, Budget(min_metric=0.7)),
        ({"grain": "block", "last_search": "exact"}, Budget(max_bops=60_000)),
    ],
    ids=["layers", "frontier of everything", "blocks"],
)
def test_a_killed_search_ends_with_the_same_bytes(changes: dict[str, Any], budget: Budget) -> None:
    options = SearchOptions(max_swaps=3, **changes)

    def model() -> AdditiveModel:
        return AdditiveModel(exits=(1, 3), samples=60)

    states: list[str] = []
    whole = search(model(), options, budget, on_step=lambda state: states.append(state.to_json()))
    assert len(states) > 10
    assert states[-1] == whole.state.to_json()
    for kept in states[::3]:
        again = search(model(), state=SearchState.from_json(kept))
        assert again.state.to_json() == states[-1]
        assert again.best == whole.best
    again = search(model(), options, budget)
    assert again.state.to_json() == states[-1]


@pytest.mark.parametrize("budget", [Budget(like="W4A4"), Budget(like="W5A5"), Budget()], ids=["start", "like", "none"])
def test_at_most_forty_passes_on_twelve_blocks(budget: Budget) -> None:
    model = AdditiveModel(exits=TWELVE, samples=100)
    result = search(model, SearchOptions(), budget)
    assert model.passes <= 40
    assert sum(step.kind == "move" for step in result.state.history) == 6  # it used what it may
    assert model.passes == ERROR_PASSES + len(set(model.traced))
    plan = make_plan(result, exit_kinds=("x",) * len(result.best.thresholds), method="repq", seed=0)
    assert plan.passes == model.passes + (budget.like == "W4A4")  # the search begins with these
    assert replace(plan, history=()).passes is None


def test_fewer_passes_for_errors() -> None:
    model = AdditiveModel()
    search(model, SearchOptions(error_passes=5, max_swaps=0), Budget(max_bops=90_000))
    assert model.passes == 5 + len(set(model.traced))


def test_at_most_forty_passes_with_a_frontier() -> None:
    """Every rung of the ladder is climbed."""
    model = AdditiveModel(exits=(6, 12), samples=60)
    result = search(model, SearchOptions(frontier=True), Budget(like="W5A5"))
    assert model.passes <= 40
    assert set(ladder.FRONTIER_LADDER) <= {step.spent for step in result.state.history}


def test_a_target_is_kept_on_samples_that_had_no_part() -> None:
    """Over many draws, the metric of new samples is on average what was asked, within its own uncertainty."""
    missed, errors = [], []
    for seed in range(6):
        result = search(
            AdditiveModel(exits=(2, 4), seed=seed, samples=150), SearchOptions(max_swaps=3), Budget(min_metric=0.7)
        )
        assert result.best.excess == 0
        fresh = AdditiveModel(exits=(2, 4), seed=100 + seed, samples=4000).trace(result.best.bits)
        missed.append(0.7 - policy_figures(fresh, result.best.thresholds).metric)
        plan = make_plan(result, exit_kinds=("mlp",), method="rtn", seed=0)
        assert plan.expected is not None
        assert plan.expected.metric_error is not None
        errors.append(plan.expected.metric_error)
    assert np.mean(missed) <= 2 * np.mean(errors) / np.sqrt(len(missed))


@pytest.mark.slow
def test_frontier() -> None:
    result = search(AdditiveModel(exits=(2, 4, 6)), SearchOptions(frontier=True), Budget(like="W4A4"))
    points = result.state.frontier
    assert [point.drop for point in points] == list(DROPS)
    met = [point for point in points if point.position.excess == 0]
    assert len(met) >= 6
    assert [point.drop for point in met] == [point.drop for point in points][-len(met) :]
    costs = [point.position.figures.bops for point in met]
    assert all(after <= before for before, after in pairwise(costs))
    assert costs[-1] < 0.9 * costs[0]
    for point in points:
        assert point.target.min_metric == pytest.approx(result.state.reachable - point.drop)
        assert len(point.folds) == 5


def test_prices() -> None:
    """Where most leave early, bits in front of the first exit cost more than others, and matter to all."""
    found = {}
    for prices in ("policy", "full-depth"):
        options = SearchOptions(prices=prices, search_bits="blocks")
        found[prices] = search(AdditiveModel(exits=(2, 6), samples=300), options, Budget(min_metric=0.6))
    policy, full = (found[prices].best for prices in ("policy", "full-depth"))
    assert max(policy.figures.exit_mass[0], full.figures.exit_mass[0]) > 0.3
    assert policy.bits != full.bits
    assert policy.objective <= full.objective


def test_narrow_ranges_begin_at_the_nearest_widths() -> None:
    options = SearchOptions(bit_min=5, bit_max=6, act_min=6, act_max=7, max_swaps=2)
    result = search(AdditiveModel(exits=(1, 2)), options, Budget(max_drop=0.05))
    assert result.state.history[0].position.bits.blocks == (BlockWidths.uniform(5, 6),) * 2
    for step in result.state.history:
        for block in step.position.bits.blocks:
            assert {pair[0] for pair in block.linear} <= {5, 6}
            assert {pair[1] for pair in block} <= {6, 7}


def test_one_pair_only() -> None:
    options = SearchOptions(bit_min=4, bit_max=4, act_min=4, act_max=4)
    model = AdditiveModel(exits=(1, 2))
    result = search(model, options, Budget(max_drop=0.5))
    assert result.best.bits == replace(model.start, heads=((4, 4),))
    assert result.state.finished


def test_fixed_widths_stay() -> None:
    fixed = frozenset({Unit("layer", 1, "fc2"), Unit("head", 0)})
    model = AdditiveModel(exits=(1, 2), fixed=fixed)
    result = search(model, SearchOptions(search_bits="all", max_swaps=3), Budget(like="W4A4"))
    assert all(step.position.bits.blocks[0].fc2 == (4, 4) for step in result.state.history)
    assert len({step.position.bits.blocks[0].fc1 for step in result.state.history}) > 1
    assert [error.unit for error in result.state.errors if error.unit == "block 1 fc2"] == []
    with pytest.raises(MaqeeError, match=r"^grain: block 1 cannot be searched as one, because the widths of its fc2"):
        search(model, SearchOptions(grain="block"))


@pytest.mark.parametrize("budget", [Budget(), Budget(like="W4A4"), Budget(min_metric=0.6)], ids=["", "like", "metric"])
@pytest.mark.parametrize("exits", [(2,), (1, 2)], ids=["no exits", "one exit"])
def test_few_exits(exits: tuple[int, ...], budget: Budget) -> None:
    result = search(AdditiveModel(exits=exits), SearchOptions(max_swaps=2, frontier=True), budget)
    assert result.state.finished
    assert result.best.excess == 0
    assert len(result.best.thresholds) == len(exits) - 1


def test_objective_of_the_paper() -> None:
    options = SearchOptions(objective="paper", max_swaps=2)
    result = search(AdditiveModel(), options)
    assert result.state.target == Budget()
    assert result.best.objective <= result.state.history[0].position.objective


def test_too_few_samples_to_split() -> None:
    result = search(AdditiveModel(samples=9, exits=(1, 2)), SearchOptions(max_swaps=1), Budget(max_drop=0.3))
    assert result.state.folds == ()
    assert make_plan(result, exit_kinds=("mlp",), method="rtn", seed=0).expected is None


def test_budgets_that_cannot_be_met() -> None:
    with pytest.raises(MaqeeError, match=r"^max_bops: 10 BOPs cannot be met: everybody leaving at the cheapest exit"):
        search(AdditiveModel(), budget=Budget(max_bops=10))
    with pytest.raises(MaqeeError, match=r"^like: W8A8 is not among the widths to choose from, 3 to 6 bits of weights"):
        search(AdditiveModel(), budget=Budget(like="W8A8"))
    model = AdditiveModel(exits=(1, 2))
    result = search(model, SearchOptions(max_swaps=2), Budget(min_metric=1.0))
    assert result.best.excess > 0
    widest = find_space(model.parts, 2, SearchOptions()).widest(model.start)
    assert result.best.figures.metric >= model.trace(widest).full_metric - 1e-9  # the most there is
    with pytest.raises(MaqeeError, match=r"^min_metric: 1.0 cannot be met .* the nearest found is"):
        result.check_met()


def test_just_possible() -> None:
    """As few bits as there are and everybody at the first exit."""
    model = AdditiveModel(exits=(1, 2))
    narrowest = BitSettings.uniform(3, 3, 2)
    cheapest = exit_costs(model.trace(replace(narrowest, head=(4, 4), merge=(4, 4))))[0]
    result = search(model, SearchOptions(max_swaps=8), Budget(max_bops=float(cheapest) * 1.3))
    assert result.best.excess == 0


def test_rungs_are_what_the_knapsack_promised() -> None:
    result = search(AdditiveModel(), SearchOptions(max_swaps=0), Budget(like="W4A4"))
    rungs = [step for step in result.state.history if step.spent is not None]
    assert rungs[0].spent == 1.0
    assert len(rungs) <= len(ladder.LADDER) + ladder.REFINED
    assert all(step.gap is not None and step.gap >= 0 for step in rungs)
    assert [step.kind for step in result.state.history].count("move") == 0
