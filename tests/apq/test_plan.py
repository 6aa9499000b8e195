"""Plans: byte-identical, complete, and particular about what they read."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maqee.apq.cost import bops, closed_blocks
from maqee.apq.figures import block_reach
from maqee.apq.held_out import choose_expected
from maqee.apq.loop import SearchResult, make_plan
from maqee.apq.plan import Plan
from maqee.errors import MaqeeError
from tests.apq.fake_model import FakeModel, search_weights, weight_options
from tests.helpers import by_block, run_python

RESULTS = sorted((Path(__file__).parents[2] / "results" / "maqee").glob("*-plan.json"))
KINDS = ("local-3x3", "local-1x1", "global-s2")


@pytest.fixture(scope="module")
def result() -> SearchResult:
    """A short search."""
    return search_weights(FakeModel(samples=50), weight_options(max_swaps=2, lambda_outer=2.0))


@pytest.fixture(scope="module")
def plan(result: SearchResult) -> Plan:
    """Its plan."""
    return make_plan(result, exit_kinds=KINDS, method="repq", seed=3)


def test_round_trip(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    back = Plan.load(path)
    assert back == plan
    assert back.to_json() == path.read_text() == plan.to_json()


def test_passes_are_not_counted_where_weights_alone_are_chosen(plan: Plan) -> None:
    assert plan.history
    assert plan.passes is None


def test_there_are_plans_of_the_version_before() -> None:
    assert len(RESULTS) >= 4


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_plans_of_the_version_before(path: Path, tmp_path: Path) -> None:
    """Version 1 had weight bits of every block, and one activation width for all."""
    stored, plan = json.loads(path.read_text()), Plan.load(path)
    assert stored["version"] == 1
    other = stored["other_bits"]
    assert plan.bits.block_weights == tuple(stored["bits"])
    assert {pair[1] for block in plan.bits.blocks for pair in block} == {other["activations"]}
    for name in ("patch", "classifier", "head", "merge"):
        assert getattr(plan.bits, name) == tuple(other[name])
    assert [step.position.bits.block_weights for step in plan.history] == [
        tuple(step["position"]["bits"]) for step in stored["history"]
    ]
    assert (plan.got.bops, plan.got.metric) == (stored["got"]["bops"], stored["got"]["metric"])
    assert plan.got.activation_bits is None
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert json.loads(plan.to_json())["version"] == 2


def test_a_plan_is_read_without_the_search() -> None:
    """Neither torch nor scipy nor what made the plan is loaded."""
    run_python(
        "import sys\n"
        "from pathlib import Path\n"
        "from maqee.apq.plan import Plan\n"
        f"Plan.load(Path({str(RESULTS[0])!r}))\n"
        "search = 'loop steps thresholds choose exact exact_bits bits objective risks figures trace validate'\n"
        "heavy = {'torch', 'scipy', *(f'maqee.apq.{name}' for name in search.split())}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )


def test_equal_searches_give_equal_bytes(plan: Plan) -> None:
    again = search_weights(FakeModel(samples=50), weight_options(max_swaps=2, lambda_outer=2.0))
    assert make_plan(again, exit_kinds=KINDS, method="repq", seed=3).to_json() == plan.to_json()


def test_a_plan_says_it_all(plan: Plan, result: SearchResult) -> None:
    stored = json.loads(plan.to_json())
    assert {
        "bits", "thresholds", "exit_blocks", "exit_kinds", "method", "budget", "got", "seed", "versions",
        "checkpoint", "task", "options", "scales", "history", "expected", "format", "version",
    } == set(stored)  # fmt: skip
    assert set(stored["versions"]) == {"maqee", "numpy", "torch"}
    assert stored["got"]["bops"] == result.best.figures.bops
    assert [step["kind"] for step in stored["history"]] == [step.kind for step in result.state.history]
    assert plan.policy.thresholds == result.best.thresholds
    assert plan.expected == choose_expected(result.trace, result.state.target, plan.scales, plan.options)[1]
    reach, closed = block_reach(result.trace, plan.thresholds), closed_blocks(plan.thresholds, plan.exit_blocks)
    cost = bops(result.trace.parts, plan.bits, reach, closed)
    assert cost == pytest.approx(plan.got.bops, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thresholds": (0.5,)}, "thresholds: 1 values for 3 exits: give 3"),
        ({"thresholds": (0.5, 0.5, 1.5)}, "thresholds: 1.5 must be from 0 to 1"),
        ({"exit_kinds": ("x",)}, "exit_kinds: 1 values for 3 exits"),
        ({"bits": by_block((4, 4, 4, 4))}, "exit_blocks"),
        ({"bits": by_block((4, 4, 4, 4, 4))}, r"history\.0\.position\.bits\.blocks: 6 values for 5 blocks"),
        ({"exit_blocks": (3, 2, 4)}, "exit_blocks"),
        ({"exit_blocks": (2, 3, 6)}, "exit_blocks"),
    ],
)
def test_plans_that_contradict_themselves(plan: Plan, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        replace(plan, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "version: this maqee reads version 2"),
        ({"format": "maqee-trace"}, "format"),
        ({"bits": None}, "bits"),
        ({"bits": [4, 4, 4, 4, 4, 4]}, "bits"),
        (
            {"bits": {"blocks": [[[4, 4], [4, 4], [4, "4"], [4, 4], [4, 4]]]}},
            r"bits\.blocks\.0\.2",
        ),
        ({"bits": {"blocks": [[[4, 4], [4, 4], [4, 99], [4, 4], [4, 4]]]}}, "1 to 32, not 99"),
        ({"thresholds": [0.5, True, 0.5]}, r"thresholds\.1"),
        ({"thresholds": [0.5, 0.5]}, "thresholds: 2 values for 3 exits"),
        ({"more": 1}, "more"),
        ({"options": {"alpha": 3}}, "alpha"),
        ({"options": {"swap": "strange"}}, r"options\.swap"),
        ({"seed": 1.5}, "seed"),
        ({"got": {}}, "got"),
    ],
)
def test_wrong_files(plan: Plan, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**json.loads(plan.to_json()), **changes}))
    with pytest.raises(MaqeeError, match=message) as caught:
        Plan.load(path)
    assert str(path) in str(caught.value)


def test_missing_keys(plan: Plan, tmp_path: Path) -> None:
    path, stored = tmp_path / "plan.json", json.loads(plan.to_json())
    for key in ("bits", "thresholds", "method", "got", "budget", "versions", "checkpoint"):
        path.write_text(json.dumps({name: value for name, value in stored.items() if name != key}))
        with pytest.raises(MaqeeError, match=key):
            Plan.load(path)


_STRANGE: list[Any] = [None, True, -1, 0, 10**30, 0.5, -2.0, 1e300, float("nan"), float("inf"), "", "x", [], [1], {}]


def _swap(values: Any, rng: random.Random) -> Any:
    """Replace, drop or add one value somewhere."""
    if isinstance(values, dict) and values and rng.random() < 0.95:
        key = rng.choice(sorted(values))
        if (action := rng.random()) < 0.1:
            return {name: value for name, value in values.items() if name != key}
        return {**values, ("strange" if action < 0.15 else key): _swap(values[key], rng)}
    if isinstance(values, list) and values and rng.random() < 0.8:
        place = rng.randrange(len(values))
        return [*values[:place], _swap(values[place], rng), *values[place + 1 :]]
    return rng.choice(_STRANGE)


def test_damaged_files(plan: Plan, tmp_path: Path) -> None:
    """Each loads as a plan that can be written again, or is refused in words."""
    path, stored = tmp_path / "plan.json", json.loads(plan.to_json())
    loaded = refused = 0
    for seed in range(800):
        path.write_text(json.dumps(_swap(stored, random.Random(seed))))
        try:
            Plan.load(path).to_json()
            loaded += 1
        except MaqeeError:
            refused += 1
    assert loaded > 20, (loaded, refused)
    assert refused > 300, (loaded, refused)
