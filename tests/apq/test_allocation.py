"""The knapsack against all combinations."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq import allocation
from maqee.apq.allocation import allocate_pairs
from maqee.errors import MaqeeError

Tables = tuple[list[np.ndarray], list[np.ndarray], float]


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    """Up to four units with up to five pairs, ties among them, and a budget that can be met."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    whole = draw(st.booleans())
    risks = [rng.integers(0, 6, size).astype(float) if whole else rng.normal(size=size) for size in sizes]
    costs = [rng.integers(1, 9, size).astype(float) if whole else rng.random(size) * 10 for size in sizes]
    least, most = sum(row.min() for row in costs), sum(row.max() for row in costs)
    return risks, costs, float(least + draw(st.floats(0, 1.1)) * (most - least))


def all_choices(table: list[np.ndarray], chosen: list[tuple[int, ...]]) -> np.ndarray:
    return np.array([sum(row[index] for row, index in zip(table, indices, strict=True)) for indices in chosen])


@given(tables())
def test_against_all_combinations(drawn: Tables) -> None:
    risks, costs, budget = drawn
    found = allocate_pairs(risks, costs, budget)
    chosen = list(itertools.product(*(range(len(row)) for row in risks)))
    every_risk, every_cost = all_choices(risks, chosen), all_choices(costs, chosen)
    assert found.risk == pytest.approx(all_choices(risks, [found.chosen])[0])
    assert found.cost == pytest.approx(all_choices(costs, [found.chosen])[0])
    assert found.cost <= budget * (1 + 1e-8) + 1e-9
    # The best with costs rounded up to a step above the least: no combination that fits even then is better.
    step = (budget - sum(row.min() for row in costs)) / allocation._STEPS
    surely_fits = every_cost <= budget - len(costs) * max(step, 0.0) - 1e-9
    assert not surely_fits.any() or found.risk <= every_risk[surely_fits].min() + 1e-9
    # The gap is never too small: no combination within the budget is better by more.
    best = every_risk[every_cost <= budget * (1 + 1e-12)].min(initial=np.inf)
    assert found.risk - found.gap <= best + 1e-9
    assert found.gap >= 0


@given(tables())
def test_rounded_costs_are_solved_exactly(drawn: Tables) -> None:
    risks, costs, budget = drawn
    least = sum(float(row.min()) for row in costs)
    rounded = [allocation._count(row - row.min(), max(budget - least, 0.0)).astype(float) for row in costs]
    chosen = list(itertools.product(*(range(len(row)) for row in risks)))
    fits = all_choices(rounded, chosen) <= allocation._STEPS
    assert allocate_pairs(risks, costs, budget).risk == pytest.approx(all_choices(risks, chosen)[fits].min(), abs=1e-9)


def test_by_hand() -> None:
    """Two units at 1 or 3 with 10 and 4 to gain, and room for one of them."""
    risks, costs = [np.array([10.0, 0.0]), np.array([4.0, 0.0])], [np.array([1.0, 3.0])] * 2
    found = allocate_pairs(risks, costs, 4.0)
    assert (found.chosen, found.risk, found.cost) == ((1, 0), 4.0, 4.0)
    assert found.gap == pytest.approx(0, abs=1e-9)  # whole steps all the way: the bound is met
    assert found.price == pytest.approx(2.0, rel=1e-6)
    assert allocate_pairs(risks, costs, 5.9).chosen == (1, 0)
    assert allocate_pairs(risks, costs, 5.9).gap == pytest.approx(4 * 1.9 / 2)  # of the half step that is left over
    assert allocate_pairs(risks, costs, 6.0).chosen == (1, 1)
    assert allocate_pairs(risks, costs, 100.0).chosen == (1, 1)
    assert allocate_pairs(risks, costs, 2.0).chosen == (0, 0)


def test_a_budget_that_cannot_be_met() -> None:
    with pytest.raises(MaqeeError, match=r"The budget of 1.5 cannot be met: the least possible is 2"):
        allocate_pairs([np.zeros(2)] * 2, [np.array([1.0, 3.0])] * 2, 1.5)
    with pytest.raises(MaqeeError, match="as many risks as costs"):
        allocate_pairs([np.zeros(2)], [np.zeros(3)], 1.0)


def test_sixty_units_of_24_pairs() -> None:
    """A ViT with 12 blocks by layer: well under a second, and next to nothing is lost by counting in steps."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.product(range(3, 7), range(3, 9)))
    risks = [np.array([rng.exponential() * 4.0**-w + rng.exponential() * 4.0**-a for w, a in pairs]) for _ in range(60)]
    costs = [float(rng.integers(1, 5)) * np.array([float(w * a) for w, a in pairs]) for _ in range(60)]
    budget = sum(row[pairs.index((4, 4))] for row in costs)
    start = time.process_time()
    found = allocate_pairs(risks, costs, budget)
    assert time.process_time() - start < 2
    assert found.cost <= budget
    assert found.gap < 0.01 * found.risk


@pytest.mark.filterwarnings("error")
def test_no_room_at_all() -> None:
    """Only the cheapest pairs fit, and their sum may be a hair above a budget that was added up in another order."""
    risks, costs = [np.array([1.0, 0.0])] * 3, [np.array([0.1, 7.0])] * 3
    budget = np.nextafter(0.1 + 0.1 + 0.1, 0)
    found = allocate_pairs(risks, costs, budget)
    assert found.chosen == (0, 0, 0)
    assert found.gap <= 1e-6
