"""The four risks, each worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maqee.apq.figures import block_reach, exit_costs, policy_figures
from maqee.apq.options import SearchOptions
from maqee.apq.risks import (
    Scales,
    bsr,
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
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError
from maqee.parts import Part
from maqee.policy import NEVER, Policy, take_exits
from tests.apq.makers import make_trace

# Four samples, two exits and full depth, after blocks 1, 3 and 4.
CONFIDENCE = np.array([[0.9, 0.5, 0.6], [0.4, 0.8, 0.7], [0.4, 0.5, 0.9], [0.8, 0.9, 0.9]])
LOSS = np.array([[1.0, 0.5, 0.25], [2.0, 0.5, 0.5], [3.0, 2.0, 1.0], [0.0, 0.5, 0.5]])
FLOAT_LOSS = np.array([[1.0, 0.5, 0.5], [2.0, 0.5, 0.5], [3.0, 2.0, 0.5], [0.0, 0.5, 0.5]])


def small(**changes: Any) -> Trace:
    """The trace of these four samples."""
    values: dict[str, Any] = {
        "confidence": CONFIDENCE,
        "float_confidence": CONFIDENCE[:, ::-1],
        "loss": LOSS,
        "float_loss": FLOAT_LOSS,
        "drift": np.arange(16).reshape(4, 4),
        "noise": np.ones((4, 4)),
        **changes,
    }
    return make_trace(4, (1, 3, 4), **values)


def test_who_leaves_where() -> None:
    confidence = CONFIDENCE[:, :2].astype(np.float32)
    assert take_exits(confidence, (0.8, 0.8)).tolist() == [0, 1, 2, 0]  # at least the threshold, not more than it
    assert take_exits(confidence, (NEVER, NEVER)).tolist() == [2, 2, 2, 2]
    assert take_exits(confidence, (0.0, 0.0)).tolist() == [0, 0, 0, 0]
    with pytest.raises(MaqeeError, match="3 thresholds for 2 exits"):
        take_exits(confidence, (0.1, 0.2, 0.3))


def test_a_threshold_is_rounded_like_the_executed_policy() -> None:
    import torch

    edge = np.float32(0.7)  # a little less than the number 0.7
    confidence = np.array([[np.nextafter(edge, np.float32(0))], [edge], [np.nextafter(edge, np.float32(1))]])
    executed = torch.from_numpy(confidence[:, 0]) < Policy((0.7,)).thresholds[0]  # as `EarlyExitModel.run` compares
    assert take_exits(confidence, (0.7,)).tolist() == executed.int().tolist() == [1, 0, 0]


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
    assert qid(small()).tolist() == [6.0, 7.0, 8.0, 9.0]
    assert inverse_sqnr(small()).tolist() == [1.0] * 4


def test_margins() -> None:
    assert margins(small(), 0.05).tolist() == [0.05, 0.05]
    moved = CONFIDENCE - CONFIDENCE[:, ::-1]
    expected = np.quantile(np.abs(moved[:, :2].astype(np.float64)), 0.9, axis=0)
    assert margins(small(), "estimated") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("headless", "expected"), [("next", [0, 0, 1, 1, -1, -1]), ("zero", [-1, 0, -1, 1, -1, -1])])
def test_exit_of_a_block(headless: Any, expected: list[int]) -> None:
    assert exit_of_block((2, 4, 6), 6, headless).tolist() == expected


def test_scales() -> None:
    lowest = small(drift=np.full((4, 4), 3.0), noise=np.full((4, 4), 0.5))
    scales = measure_scales(small(), lowest, SearchOptions())
    gaps = [(0.75 + 1.5 + 2 + 0.5) / 4, (0.25 + 0 + 1 + 0) / 4]
    assert scales.pgr == max(gaps)
    assert (scales.qid, scales.sqnr, scales.tau) == (3.0, 0.5, (0.05, 0.05))
    # patch and classifier 30 x 1024, four blocks of 1000 x 16 + 100 x 16, two heads of 50 x 16
    assert scales.cost == 30 * 1024 + 4 * 1100 * 16 + 2 * 50 * 16
    plain = measure_scales(small(), lowest, SearchOptions(normalise="none", cost_scale="none"))
    assert (plain.pgr, plain.qid, plain.sqnr, plain.cost) == (1.0, 1.0, 1.0, 1.0)


def test_nothing_is_divided_by_zero() -> None:
    free = (Part("patch", "patch", 0, 0),)
    same = small(loss=np.ones((4, 3)), drift=np.zeros((4, 4)), noise=np.zeros((4, 4)), parts=free)
    assert measure_scales(same, same, SearchOptions()) == Scales(tau=(0.05, 0.05))


def test_risk_of_blocks() -> None:
    trace, scales = small(), Scales(pgr=0.5, qid=2.0, sqnr=4.0, tau=(0.1, 0.1))
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
    assert risk_of_blocks(small(), (0.8, 0.5), scales, options)[0] == pytest.approx(expected, abs=1e-7)


def test_figures() -> None:
    figures = policy_figures(small(correct=[[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]]), (0.8, 0.8))
    assert figures.exit_mass == (0.5, 0.25, 0.25)
    assert (figures.metric, figures.loss) == (0.75, (1 + 0.5 + 1 + 0) / 4)
    assert figures.mean_exit == 0.5 * 1 + 0.25 * 3 + 0.25 * 4
    costs = exit_costs(small())
    assert costs.tolist() == [30720 + 17600 + 800, 30720 + 3 * 17600 + 1600, 30720 + 4 * 17600 + 1600]
    assert figures.bops == pytest.approx((costs * [0.5, 0.25, 0.25]).sum())
    assert block_reach(small(), (0.8, 0.8)).tolist() == [1.0, 0.5, 0.5, 0.25]


def test_the_cost_of_a_policy_agrees_with_the_cost_model() -> None:
    from maqee.apq.cost import bops

    trace, thresholds = make_trace(), (0.9, 0.85, 0.95)
    reach = block_reach(trace, thresholds)
    assert policy_figures(trace, thresholds).bops == pytest.approx(bops(trace.parts, trace.bits, reach), rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [{"alpha": 1.5}, {"lambda_outer": -1.0}, {"tau": 0.9}, {"bit_min": 7}, {"bit_min": 0}, {"max_swaps": -1}],
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(MaqeeError, match=next(iter(wrong))):
        SearchOptions(**wrong)
