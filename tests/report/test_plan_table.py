"""A plan as text: widths of every layer, what was asked, what came of it, and how the search went."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maqee.apq import BitSettings, Budget, Figures, Plan, SearchOptions
from maqee.apq.records import Expected, Position, Step
from maqee.report.bit_table import bit_lines, bit_words, pair_words
from maqee.report.plan_table import asked_words, plan_table, search_words
from maqee.widths import BlockWidths

FIGURES = Figures(0.9, 0.3, 1.5e9, 3.5, (0.5, 0.5), 4.0, 3.6, 4.75)
MIXED = BlockWidths((3, 6), (5, 5), (4, 4), (3, 8), (6, 3))


def settings(depth: int, **parts: tuple[int, int]) -> BitSettings:
    return BitSettings(blocks=(*(BlockWidths.uniform(4, 4),) * (depth - 1), MIXED), **parts)  # type: ignore[arg-type]


def step(kind: str, accepted: bool = True, excess: float = 0.0) -> Step:
    position = Position(BitSettings.uniform(4, 4, 4), (0.8,), excess, 1.0, replace(FIGURES, metric=0.85))
    return Step(kind, position, accepted, excess, 1.0)  # type: ignore[arg-type]


def plan(**changes: object) -> Plan:
    values: dict[str, object] = {
        "bits": settings(4),
        "thresholds": (0.8,),
        "exit_blocks": (2,),
        "exit_kinds": ("mlp",),
        "method": "erq",
        "task": "classification",
        "checkpoint": "abc",
        "seed": 0,
        "versions": {},
        "budget": Budget(max_drop=0.01),
        "got": FIGURES,
        "expected": Expected(0.88, 1.6e9, 3.6, 5, 0.012, 1e7),
        "history": (step("start"), step("exact"), step("exact", False), step("move"), step("last")),
    }
    return Plan(**(values | changes))  # type: ignore[arg-type]


def test_a_plan_by_hand() -> None:
    assert plan_table(plan()).splitlines() == [
        "bits of block        1    2    3    4",
        "  qkv                4/4  4/4  4/4  3/6",
        "  attention          4/4  4/4  4/4  5/5",
        "  projection         4/4  4/4  4/4  4/4",
        "  fc1                4/4  4/4  4/4  3/8",
        "  fc2                4/4  4/4  4/4  6/3",
        "  exit heads         4/4",
        "bits on average      3.6 of weights, 4.75 of activations",
        "exits after block    2",
        "thresholds           0.80",
        "leaving              50% 50%",
        "asked                accuracy at most 1.00% below full precision, on images that did not choose",
        "on calibration       accuracy 90.00% at mean exit 3.50, 1.500e+09 BOPs (simulated)",
        "on other images      accuracy 88.00% ± 1.20% at mean exit 3.60, 1.600e+09 BOPs (expected: cross-validated in "
        "5 parts)",
        "uniform W4A4         accuracy 85.00% at mean exit 3.50, 1.500e+09 BOPs (on calibration, simulated)",
        "search               2 allocations tried, 1 kept; 1 move tried, 1 kept",
    ]


def test_the_first_widths_may_miss_what_is_asked() -> None:
    assert "(on calibration, simulated; misses what is asked)" in plan_table(plan(history=(step("start", excess=0.1),)))


def test_uniform_bits_have_no_training() -> None:
    text = plan_table(plan(history=(step("start"), step("last"), step("recovery"))))
    assert "BOPs (on calibration, simulated, without training)" in text
    assert "training kept" in text


def test_a_plan_made_by_hand_has_no_history() -> None:
    text = plan_table(plan(history=(), expected=None))
    assert "search  " not in text
    assert "uniform" not in text


@pytest.mark.parametrize(("depth", "parts", "columns"), [(12, 1, 12), (13, 2, 7), (24, 2, 12), (40, 4, 10)])
def test_many_blocks_are_shown_in_parts(depth: int, parts: int, columns: int) -> None:
    lines = bit_lines(settings(depth).to_json())
    headings = [line.split()[3:] for line in lines if line.startswith("bits of block")]
    assert len(headings) == parts
    assert [number for heading in headings for number in heading] == [str(n + 1) for n in range(depth)]
    assert len(headings[0]) == columns
    assert max(map(len, lines)) <= 100


def test_blocks_of_one_pair_take_one_line() -> None:
    assert bit_lines(BitSettings.uniform(4, 6, 3).to_json()) == [
        "bits of block        1    2    3",
        "  all layers         4/6  4/6  4/6",
        "  exit heads         4/6",
    ]


def test_other_parts_are_named_when_they_are_not_float() -> None:
    quiet = bit_lines(settings(2).to_json())
    assert not any("patch" in line or "classifier" in line for line in quiet)
    loud = bit_lines(replace(settings(2, patch=(8, 8), classifier=(8, 32)), heads=((4, 5), (6, 6))).to_json())
    assert loud[-3:] == [
        "  exit heads         4/5 6/6",
        "  patch embedding    8/8",
        "  classifier         8/float",
    ]


def test_pairs_in_words() -> None:
    assert [pair_words(pair) for pair in ((4, 6), (8, 32), (32, 32))] == ["4/6", "8/float", "float"]


def test_one_line() -> None:
    assert bit_words(settings(2).to_json()) == "4/4 3/6,5/5,4/4,3/8,6/3"
    assert bit_words([4, 3.5]) == "4 3.5"  # results from before there were pairs
    assert bit_lines([4, 3]) == ["bits of block        1  2", "  weights            4  3"]


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(max_bops=1e9), "at most 1e+09 BOPs"),
        (Budget(like="w4a4"), "the best accuracy at the cost of uniform W4A4"),
        (
            Budget(like="W4A5", max_drop=0.02),
            "the best accuracy at the cost of uniform W4A5 at most 2.00% below its full depth",
        ),
        (Budget(min_metric=0.9, target_on="calibration"), "accuracy of at least 90.00%, on calibration images"),
        (Budget(), "the least J"),
    ],
)
def test_what_was_asked(budget: Budget, words: str) -> None:
    assert asked_words(budget, "accuracy") == words


def test_nothing_asked_is_said() -> None:
    assert (
        "accuracy at most 1.00% below what the quantized model can reach, on images that did not choose (the usual; "
        "nothing was asked)"
    ) in plan_table(plan(budget=Budget()))
    assert "the least J" in plan_table(plan(budget=Budget(), options=SearchOptions(objective="paper")))


def test_what_a_search_did() -> None:
    assert search_words((step("start"),)) == "thresholds only"
    swaps = (step("start"), step("swap"), step("swap", False), step("recovery", False))
    assert search_words(swaps) == "2 swaps tried, 1 kept; training not kept"
