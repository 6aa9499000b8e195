"""The four risks, each worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maqee.apq.objective import outer_problem
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.apq.risks import (
    bsr,
    decision_risk,
    exit_of_block,
    inverse_sqnr,
    margins,
    measure_scales,
    noise_ratio,
    pgr,
    qid,
    range_deviation,
    risk_of_blocks,
)
from maqee.apq.thresholds import CANDIDATES
from maqee.parts import Part
from maqee.policy import NEVER
from tests.apq.makers import CONFIDENCE, FLOAT_LOSS, LOSS, four_samples, make_trace


def test_pgr_of_those_who_leave() -> None:
    taken = np.array([0, 1, 2, 0])
    # exit 0: sample 0 loses 0.75, sample 3 gains 0.5; exit 1: sample 1 loses nothing; full depth: sample 2 likewise
    assert pgr(LOSS, LOSS[:, -1], taken).tolist() == [0.0625, 0.0, 0.0]
    assert pgr(LOSS, FLOAT_LOSS[:, -1], taken).tolist() == [0.0, 0.0, 0.125]
    policy_gap = LOSS[np.arange(4), taken].mean() - LOSS[:, -1].mean()
    assert pgr(LOSS, LOSS[:, -1], taken).sum() == pytest.approx(policy_gap)


def test_pgr_as_printed() -> None:
    assert pgr(LOSS, LOSS[:, -1]).tolist() == [(0.75 + 1.5 + 2 - 0.5) / 4, (0.25 + 0 + 1 + 0) / 4, 0.0]


def test_bsr() -> None:
    confidence = CONFIDENCE[:, :2]
    assert bsr(confidence, (0.8, 0.5), 0.1).tolist() == [0.5, 0.5]  # 0.9 and 0.8; twice 0.5
    assert bsr(confidence, (0.8, 0.5), (0.05, 0.3)).tolist() == [0.25, 0.75]
    assert bsr(confidence, (NEVER, 0.0), 0.05).tolist() == [0.0, 0.0]
    # Samples 0 and 3 leave at the first exit and are not seen at the second.
    assert bsr(confidence, (0.8, 0.5), 0.1, np.array([0, 1, 2, 0])).tolist() == [0.5, 0.25]


def test_range_deviation_and_noise_ratio() -> None:
    float_output = np.array([[[0.0, 1.0], [2.0, 4.0]], [[1.0, -1.0], [1.0, -1.0]]])  # (2 samples, 2 tokens, 2 channels)
    output = np.array([[[0.0, 1.0], [2.0, 6.0]], [[1.0, 0.0], [1.0, 0.0]]])
    assert range_deviation(float_output, output).tolist() == [0.25, 0.25]  # 6/4 - 1 and 1/2 - 1, squared
    assert noise_ratio(float_output, output).tolist() == [4 / 21, 0.5]
    assert range_deviation(float_output, float_output).tolist() == [0.0, 0.0]
    flat = np.zeros((1, 3))
    assert np.isfinite(range_deviation(flat, np.array([[0.0, 0.0, 1.0]]))).all()
    assert noise_ratio(flat, flat).tolist() == [0.0]


def test_a_sample_does_not_depend_on_its_company() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 5, 3, 4))
    for measure in (range_deviation, noise_ratio):
        alone = [float(measure(one[i : i + 1], other[i : i + 1])[0]) for i in range(5)]
        assert measure(one, other).tolist() == alone


def test_means_over_samples() -> None:
    assert qid(four_samples()).tolist() == [6.0, 7.0, 8.0, 9.0]
    assert inverse_sqnr(four_samples()).tolist() == [1.0] * 4


def test_margins() -> None:
    assert margins(four_samples(), 0.05).tolist() == [0.05, 0.05]
    moved = CONFIDENCE - CONFIDENCE[:, ::-1]
    expected = np.quantile(np.abs(moved[:, :2].astype(np.float64)), 0.9, axis=0)
    assert margins(four_samples(), "estimated") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("headless", "expected"), [("next", [0, 0, 1, 1, -1, -1]), ("zero", [-1, 0, -1, 1, -1, -1])])
def test_exit_of_a_block(headless: Any, expected: list[int]) -> None:
    assert exit_of_block((2, 4, 6), 6, headless).tolist() == expected


def test_scales() -> None:
    lowest = four_samples(drift=np.full((4, 4), 3.0), noise=np.full((4, 4), 0.5))
    scales = measure_scales(four_samples(), lowest, SearchOptions())
    gaps = [(0.75 + 1.5 + 2 + 0.5) / 4, (0.25 + 0 + 1 + 0) / 4]
    assert scales.pgr == max(gaps)
    assert (scales.qid, scales.sqnr, scales.tau) == (3.0, 0.5, (0.05, 0.05))
    # patch and classifier 30 x 1024, four blocks of 1000 x 16 + 100 x 16, two heads of 50 x 16
    assert scales.cost == 30 * 1024 + 4 * 1100 * 16 + 2 * 50 * 16
    plain = measure_scales(four_samples(), lowest, SearchOptions(normalise="none", cost_scale="none"))
    assert (plain.pgr, plain.qid, plain.sqnr, plain.cost) == (1.0, 1.0, 1.0, 1.0)


def test_the_scale_of_bsr() -> None:
    """Float confidences 0.6, 0.7, 0.9, 0.9 at the first exit, 0.5, 0.8, 0.5, 0.9 at the second.

    Candidates are the quantized model's 0.4, 0.8, 0.9 and 0.5, 0.8, 0.9 with 0 and never. Within 0.05 of 0.9 lie two
    at the first exit, within 0.05 of 0.5 two at the second; a margin of 0.2 reaches from 0.8 to four at the first.
    """
    trace, fixed = four_samples(), SearchOptions(bsr_scale="fixed")
    assert measure_scales(trace, trace, fixed).bsr == 0.5
    assert measure_scales(trace, trace, SearchOptions(bsr_scale="fixed", tau=0.21)).bsr == 1.0
    assert measure_scales(trace, trace, SearchOptions()).bsr == 1.0
    scales = Scales(bsr=0.25)
    assert decision_risk(np.zeros(2), np.array([0.5, 0.25]), scales, fixed) == pytest.approx([0.75 * 2, 0.75])


@pytest.mark.parametrize("candidates", ["quantiles", "grid"])
def test_no_candidate_has_a_larger_bsr_than_its_scale(candidates: Any) -> None:
    trace, options = make_trace(300), SearchOptions(bsr_scale="fixed", candidates=candidates)
    problem = outer_problem(trace, Scales(tau=(0.05,) * 3), options)
    most = 0.0
    for index in range(3):
        for value in CANDIDATES[candidates](problem, index, 0.5):
            most = max(most, float(bsr(trace.float_confidence[:, :-1], (value,) * 3, 0.05)[index]))
    assert measure_scales(trace, trace, options).bsr == most


def test_nothing_is_divided_by_zero() -> None:
    free = (Part("patch", "patch", 0, 0),)
    same = four_samples(loss=np.ones((4, 3)), drift=np.zeros((4, 4)), noise=np.zeros((4, 4)), parts=free)
    assert measure_scales(same, same, SearchOptions()) == Scales(tau=(0.05, 0.05))


def test_risk_of_blocks() -> None:
    trace, scales = four_samples(), Scales(pgr=0.5, qid=2.0, sqnr=4.0, tau=(0.1, 0.1))
    options = SearchOptions(bsr_confidence="quantized", pgr_reference="quantized")
    thresholds = (0.8, 0.5)
    # Samples 0 and 3 leave at once, the others at the second exit: PGR 0.0625 and (0 + 1) / 4; BSR 0.5 each.
    first, second = 0.75 * (0.0625 / 0.5 + 0.5), 0.75 * (0.25 / 0.5 + 0.5)
    representation = [0.25 * (value / 2 + 1 / 4) for value in (6.0, 7.0, 8.0, 9.0)]
    decision = [first, second, second, 0.0]
    expected = [a + b for a, b in zip(decision, representation, strict=True)]
    assert risk_of_blocks(trace, thresholds, scales, options) == pytest.approx(expected, abs=1e-7)
    zero = replace(options, headless="zero")
    expected[1] -= second
    assert risk_of_blocks(trace, thresholds, scales, zero) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ("use_pgr", 0.75 * 0.125),
        ("use_bsr", 0.75 * 0.5),
        ("use_qid", 0.25 * 6 / 2),
        ("use_sqnr", 0.25 / 4),
    ],
)
def test_switches(left: str, expected: float) -> None:
    switches: dict[str, Any] = {name: name == left for name in ("use_pgr", "use_bsr", "use_qid", "use_sqnr")}
    options = SearchOptions(bsr_confidence="quantized", pgr_reference="quantized", **switches)
    scales = Scales(pgr=0.5, qid=2.0, sqnr=4.0, tau=(0.1, 0.1))
    assert risk_of_blocks(four_samples(), (0.8, 0.5), scales, options)[0] == pytest.approx(expected, abs=1e-7)
