"""The whole search on a model made of formulas: downhill, within budgets, and the same after a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from maqee.apq.budget import Budget
from maqee.apq.figures import policy_figures
from maqee.apq.search_state import SearchState
from maqee.errors import MaqeeError
from maqee.widths import BitSettings
from tests.apq.fake_model import FakeModel, search_weights, weight_options
from tests.helpers import by_block

_OPTIONS: list[dict[str, Any]] = [
    {}, {"recovery_steps": 10}, {"spread": "path"}, {"swap": "literal"}, {"swap": "literal", "accept": "always"},
    {"refresh": "once"}, {"candidates": "every"}, {"first_move": "exact"}, {"last_search": "exact"},
    {"lambda_outer": 3.0}, {"use_bsr": False},
    {"recovery_steps": 5, "accept": "always"}, {"tau": "estimated", "outer_sum": "blocks"},
]  # fmt: skip


@pytest.mark.parametrize("changes", _OPTIONS, ids=str)
def test_downhill(changes: dict[str, Any]) -> None:
    result = search_weights(FakeModel(), weight_options(**changes))
    history = result.state.history
    best = [(step.best_excess, step.best_objective) for step in history]
    assert all(after <= before for before, after in pairwise(best))
    assert best[-1] == (result.best.excess, result.best.objective)
    assert history[0].kind == "start"
    assert history[-1].kind == "last"
    assert sum(step.kind != "last" for step in history) <= 2 * 6 + 1
    if changes.get("accept") != "always":
        kept = [step.position.objective for step in history if step.accepted]
        assert all(after < before for before, after in pairwise(kept))
    tried = [step.position.bits.block_weights for step in history if step.kind != "last"]
    assert len(set(tried)) == len(tried)
    for bits in tried:
        assert sum(bits) <= 24
        assert all(3 <= width <= 6 for width in bits)
    assert result.trace.bits == result.best.bits
    assert policy_figures(result.trace, result.best.thresholds) == result.best.figures


def test_bits_go_where_they_are_needed() -> None:
    """Block 1 is the noisiest and everybody runs it; blocks 5 and 6 hardly matter."""
    result = search_weights(FakeModel())
    assert result.best.bits.block_weights[0] > 4
    assert min(result.best.bits.block_weights[4:]) == 3
    start = result.state.history[0].position
    assert result.best.objective < start.objective
    assert sum(result.best.bits.block_weights) == 24


def test_both_terms_of_a_swap_are_in_the_history() -> None:
    swaps = [step for step in search_weights(FakeModel()).state.history if step.kind == "swap"]
    assert swaps
    for step in swaps:
        assert None not in (step.donor, step.receiver, step.risk_term, step.cost_term)
        assert 1 <= step.donor <= 6  # type: ignore[operator]


@pytest.mark.parametrize("changes", [{}, {"recovery_steps": 10}, {"refresh": "once"}, {"first_move": "exact"}], ids=str)
def test_a_killed_search_ends_with_the_same_bytes(changes: dict[str, Any]) -> None:
    options = weight_options(**changes)
    states: list[str] = []
    whole = search_weights(FakeModel(), options, on_step=lambda state: states.append(state.to_json()))
    assert len(states) == len(whole.state.history) > 2
    for place in range(0, len(states), 2):
        disk: dict[str, str] = {}
        dead = FakeModel(kept=disk)

        def die(state: SearchState, place: int = place) -> None:
            if len(state.history) == place + 1:
                raise SystemError("killed")

        with pytest.raises(SystemError, match="killed"):
            search_weights(dead, options, on_step=die)
        again = search_weights(FakeModel(kept=disk), state=SearchState.from_json(states[place]))
        assert again.state.to_json() == whole.state.to_json()
        assert again.best == whole.best


def test_a_finished_search_has_nothing_to_do() -> None:
    whole = search_weights(FakeModel())
    assert search_weights(FakeModel(), state=whole.state).state == whole.state


def test_training_is_undone_when_a_swap_is_refused() -> None:
    model = FakeModel()
    result = search_weights(model, weight_options(recovery_steps=10))
    assert any(not step.accepted for step in result.state.history)
    assert all(bool(step.position.weights) == step.accepted for step in result.state.history if step.kind == "swap")
    ended = model.damage
    model.restore(result.best.weights)
    assert model.damage == ended  # the weights are those of the best position


def test_ctrl_c_between_steps() -> None:
    import signal

    def interrupt(state: SearchState) -> None:
        if len(state.history) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    result = search_weights(FakeModel(), on_step=interrupt)
    assert not result.state.finished
    assert len(result.state.history) == 3
    ended = search_weights(FakeModel(), state=result.state)
    assert ended.state.to_json() == search_weights(FakeModel()).state.to_json()


def test_ctrl_c_within_a_step() -> None:
    class Impatient(FakeModel):
        def recover(self, *arguments: Any) -> None:
            super().recover(*arguments)
            if self.asked.count("recover") == 3:
                self.damage = 100.0  # half trained
                raise KeyboardInterrupt

    model = Impatient()
    result = search_weights(model, weight_options(recovery_steps=10))
    assert not result.state.finished
    assert len(result.state.history) == 2
    assert model.damage < 2  # the best weights are back


def test_uneven_bits() -> None:
    result = search_weights(FakeModel(), budget=Budget(average_bits=4.5))
    first = result.state.history[0].position.bits.block_weights
    assert sum(first) == 27
    assert set(first) == {4, 5}
    assert first[0] == 5  # the noisiest block first
    assert result.best.figures.average_bits == 4.5


def test_a_maximum_of_bops() -> None:
    free = search_weights(FakeModel()).best.figures
    result = search_weights(FakeModel(), budget=Budget(max_bops=0.8 * free.bops))
    assert result.best.excess == 0
    assert result.best.figures.bops <= 0.8 * free.bops * (1 + 1e-6)


def test_a_minimum_of_accuracy() -> None:
    model = FakeModel()
    target = round(float(model.trace(model.start).correct[:, -1].mean()) - 0.03, 3)
    result = search_weights(model, budget=Budget(min_metric=target))
    assert result.best.figures.metric >= target - 1e-6
    assert result.best.objective == pytest.approx(result.best.figures.bops / result.state.scales.cost)
    first = result.state.history[0].position
    assert result.best.figures.bops <= first.figures.bops


def test_a_drop_below_full_precision_is_a_minimum_of_accuracy() -> None:
    trace = FakeModel().trace(by_block((4,) * 6))
    full, drop = trace.float_metric, 0.05
    assert full == trace.float_correct[:, -1].astype(float).mean()
    one = search_weights(FakeModel(), budget=Budget(max_drop=drop))
    other = search_weights(FakeModel(), budget=Budget(min_metric=full - drop))
    assert one.best == other.best
    assert one.state.budget.max_drop == drop


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"average_bits": 2.0}, "average_bits: 2.0 cannot be met with 3 to 6 bits a block: the nearest that can is 3"),
        ({"average_bits": 7.0}, "the nearest that can is 6"),
        ({"max_bops": 1000.0}, "max_bops: 1000 BOPs cannot be met: everybody leaving at the cheapest exit"),
        ({"min_metric": 1.0}, r"min_metric: 1.0 cannot be met at 4 bits on average: the nearest found is 0\."),
        ({"max_bops": 61000.0}, r"max_bops: 6.1e\+04 BOPs cannot be met at 4 bits on average: the nearest found is"),
    ],
)
def test_budgets_that_cannot_be_met(budget: dict[str, Any], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        search_weights(FakeModel(), budget=Budget(**budget)).check_met()


def test_too_many_exits_are_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maqee.apq.exact.MOST_EXITS", 2)
    model = FakeModel()
    with pytest.raises(MaqeeError, match="the model has 3"):
        search_weights(model, weight_options(last_search="exact"))
    assert model.asked == ["trace"]


def test_passes_are_not_wasted() -> None:
    """Two passes to begin with, one for every swap tried; block risks once for every position gone on from."""
    model = FakeModel()
    history = search_weights(model).state.history
    swaps = [step for step in history if step.kind == "swap"]
    assert model.asked.count("trace") == 2 + len(swaps)
    assert model.asked.count("risks") == 1 + sum(step.accepted for step in swaps)


def test_no_exits() -> None:
    """Without exits only bits are left to choose."""

    class Plain(FakeModel):
        def trace(self, bits: BitSettings) -> Any:
            trace = super().trace(bits)
            names = ("float_confidence", "confidence", "float_loss", "loss", "float_correct", "correct")
            return replace(trace, exit_blocks=(6,), **{name: getattr(trace, name)[:, -1:] for name in names})

    result = search_weights(Plain(), weight_options(last_search="exact"))
    assert result.best.thresholds == ()
    assert result.best.figures.mean_exit == 6
    assert result.best.bits.block_weights[0] > 4


def test_no_swaps() -> None:
    result = search_weights(FakeModel(), weight_options(max_swaps=0))
    assert [step.kind for step in result.state.history] == ["start", "last"]
    assert result.best.bits == by_block((4,) * 6)


def test_another_search_cannot_go_on() -> None:
    state = search_weights(FakeModel()).state
    with pytest.raises(MaqeeError, match="other options or another budget"):
        search_weights(FakeModel(), weight_options(alpha=0.5), state=state)
    with pytest.raises(MaqeeError, match="other options or another budget"):
        search_weights(FakeModel(), budget=Budget(average_bits=5), state=state)
    short = replace(state, now=replace(state.now, bits=by_block((4,))))
    with pytest.raises(MaqeeError, match="is for 1 blocks, not 6"):
        search_weights(FakeModel(), state=short)


@pytest.mark.process
def test_threads_do_not_matter() -> None:
    """Another process with another number of threads gives the same bytes."""
    program = "from tests.apq.fake_model import FakeModel, search_weights\n"
    program += "print(search_weights(FakeModel(samples=3000)).state.to_json(), end='')"
    variables = {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3", "MKL_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], env={**os.environ, **variables},
    )  # fmt: skip
    assert done.stdout == search_weights(FakeModel(samples=3000)).state.to_json()
