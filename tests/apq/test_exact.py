"""The exact search against brute force, on lists of candidates short enough to try everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from maqee.apq import exact
from maqee.apq.exact import exact_search
from maqee.apq.objective import ExitProblem, outer_problem
from maqee.apq.options import SearchOptions
from maqee.apq.records import better
from maqee.apq.risks import measure_scales
from maqee.apq.thresholds import GRID, coordinate_search, evaluated, every_candidate, grid_candidates
from maqee.errors import MaqeeError
from maqee.policy import NEVER
from tests.apq.makers import make_trace, problems

COARSE = ((0.0, 0.3, 0.6, 1.0, NEVER), (0.0, 0.45, NEVER), (0.1, 0.2, 0.85, NEVER), (0.5, NEVER), (0.0, 0.7, NEVER))


def coarse_candidates(problem: ExitProblem, index: int, now: float) -> NDArray[np.float64]:
    """Lists of different lengths, so that no exit can be mistaken for another."""
    return np.array(COARSE[index])


@given(st.data())
@settings(max_examples=40)
def test_brute_force(data: st.DataObject) -> None:
    """One to five exits: with three, all is one table; with more, thresholds are walked through and skipped."""
    problem: ExitProblem = data.draw(problems(exits=data.draw(st.integers(1, 5)), most=20, step=20))
    with pytest.MonkeyPatch.context() as patch:  # no help from another search
        patch.setattr(exact, "coordinate_search", lambda problem, *_: evaluated(problem, (NEVER,) * problem.exits))
        found = exact_search(problem, candidates=coarse_candidates)
    tried = [problem.evaluate(thresholds) for thresholds in product(*COARSE[: problem.exits])]
    assert (found.excess, found.objective) == pytest.approx(min(tried), abs=1e-9)
    assert (found.excess, found.objective) == problem.evaluate(found.thresholds)


@given(problems(exits=3, most=8))
@settings(max_examples=10)
def test_brute_force_on_all_quantiles(problem: ExitProblem) -> None:
    """A few samples are their own quantiles."""
    found = exact_search(problem)
    tried = [problem.evaluate(thresholds) for thresholds in product(*problem.quantiles)]
    assert (found.excess, found.objective) == pytest.approx(min(tried), abs=1e-9)


@given(problems(exits=2, most=10))
@settings(max_examples=2)
def test_brute_force_on_the_whole_grid(problem: ExitProblem) -> None:
    found = exact_search(problem, candidates=grid_candidates)
    tried = [problem.evaluate(thresholds) for thresholds in product(GRID, repeat=2)]
    assert (found.excess, found.objective) == pytest.approx(min(tried), abs=1e-9)


@given(problems(exits=2, most=10))
@settings(max_examples=10)
def test_every_value_is_never_worse(problem: ExitProblem) -> None:
    """Quantiles are combined, beginning with what one search at a time finds among all values."""
    found = exact_search(problem, (0.8, 0.8), every_candidate)
    assert not better(coordinate_search(problem, (0.8, 0.8), every_candidate), found)
    assert not better(exact_search(problem, (0.8, 0.8)), found)


@pytest.mark.parametrize("bsr_samples", ["all", "reaching"])
def test_never_worse_than_coordinate_search(bsr_samples: str) -> None:
    trace = make_trace(300, (2, 3, 4, 5, 6))
    options = SearchOptions(lambda_outer=1.5, bsr_samples=bsr_samples)  # type: ignore[arg-type]
    problem = outer_problem(trace, measure_scales(trace, trace, options), options)
    found = exact_search(problem)
    assert not better(coordinate_search(problem, (0.8,) * 4), found)
    rng = np.random.default_rng(0)
    for _ in range(300):
        assert not better(evaluated(problem, [float(rng.choice(values)) for values in problem.quantiles]), found)


def test_too_many_exits() -> None:
    trace = make_trace(5, (1, 2, 3, 4, 5, 6, 7))
    problem = outer_problem(trace, measure_scales(trace, trace, SearchOptions()), SearchOptions())
    with pytest.raises(MaqeeError, match="up to 5 exits, the model has 6"):
        exact_search(problem)
