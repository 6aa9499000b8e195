"""The best that uniform widths can do: the same figures as the baselines have, and nothing dominated among them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import maqee
from maqee.apq import BitSettings, Trace
from maqee.compression.compress_options import CompressOptions
from maqee.compression.envelope import SWEEP, choose_shared
from maqee.compression.envelope_results import Envelope, EnvelopePoint, UniformPair, upper_envelope
from maqee.errors import MaqeeError
from maqee.parts import Part
from maqee.policy import NEVER
from maqee.quant import Bits, QuantSettings
from tests.helpers import FIXTURES

MODEL = FIXTURES / "digits"
OPTIONS = CompressOptions(fit_images=8, samples=40, seed=3)


@pytest.fixture(scope="module")
def found() -> Envelope:
    return maqee.envelope(
        MODEL, ("erq", "repq"), weights=(3, 4), activations=(5, 4), data="digits", options=OPTIONS, device="cpu"
    )


def pair_of(found: Envelope, method: str, name: str) -> UniformPair:
    [pair] = [pair for pair in found.pairs if (pair.method, pair.name) == (method, name)]
    return pair


@pytest.mark.parametrize(
    ("method", "weight", "activation"),
    [("erq", 4, 4), ("erq", 3, 5), ("erq", 3, 4), ("repq", 4, 4), ("repq", 4, 5)],  # RepQ was fitted with 4-bit weights
)
def test_a_pair_is_what_the_baselines_are(found: Envelope, method: str, weight: int, activation: int) -> None:
    """Fitted once for all pairs, or for this one alone: the same figures at every exit and threshold, and costs."""
    options = CompressOptions(
        fit_images=8, samples=40, seed=3, quantization=QuantSettings(weight_bits=weight, act_bits=activation)
    )
    _, baseline = maqee.baselines(MODEL, (method,), data="digits", options=options, device="cpu").rows
    pair = pair_of(found, method, f"W{weight}A{activation}")
    assert pair.exits == baseline.exits
    swept = {row.thresholds: row for row in pair.swept}
    assert len(swept) == len(SWEEP)
    for row in baseline.policies:
        assert swept[row.thresholds] == row


def test_every_pair_is_measured_once(found: Envelope) -> None:
    names = ["W3A4", "W3A5", "W4A4", "W4A5"]
    assert [(pair.method, pair.name) for pair in found.pairs] == [(m, n) for m in ("erq", "repq") for n in names]
    assert (found.images, found.calibration_images, found.seed, found.fitted_weight_bits) == (360, 40, 3, 4)
    full = pair_of(found, "erq", "W3A4").swept[-1]
    assert full.thresholds == (NEVER, NEVER)
    assert full.mean_exit == 4


def test_the_model_as_it_came_stands_beside(found: Envelope) -> None:
    full, _ = maqee.baselines(MODEL, ("rtn",), data="digits", options=OPTIONS, device="cpu").rows
    assert found.full_precision == full.exits


def test_the_envelope_is_made_of_measured_rows(found: Envelope) -> None:
    rows = {
        (pair.method, pair.name, row.thresholds[0]): (row.metrics["accuracy"], row.bops)
        for pair in found.pairs
        for row in (*pair.swept, pair.chosen)
    }
    for point in found.points:
        assert rows[point.method, point.bits, point.threshold] == (point.metric, point.bops)
    assert max(point.metric for point in found.points) == max(metric for metric, _ in rows.values())
    assert min(point.bops for point in found.points) == min(bops for _, bops in rows.values())


def test_the_honest_threshold_is_shared_and_cheaper_than_full_depth(found: Envelope) -> None:
    for pair in found.pairs:
        assert len(set(pair.chosen.thresholds)) == 1
        assert pair.chosen.bops <= pair.swept[-1].bops
        assert pair.chosen.calibration_target is not None


def test_json_says_who_was_favoured(found: Envelope) -> None:
    values = found.to_json()
    assert values["thresholds"] == "swept on the test images, in the baselines' favour"
    assert values["accuracy_is"] == "simulated"
    assert set(values["pairs"][0]["swept"][0]) == {"threshold", "accuracy", "mean_exit", "bops"}
    assert "calibration_target" in values["pairs"][0]["chosen_on_calibration"]
    assert values["envelope"][0]["accuracy"] == found.points[0].metric


def test_what_is_not_switched_keeps_its_bits() -> None:
    """Patch embedding and classifier as asked, and counted like that."""
    settings = QuantSettings(patch=Bits(8, 8), classifier=Bits(8, 8))
    options = CompressOptions(fit_images=4, samples=8, quantization=settings)
    given_bits = maqee.envelope(
        MODEL, ("rtn",), weights=(4,), activations=(4,), data="digits", options=options, device="cpu"
    )
    _, baseline = maqee.baselines(MODEL, ("rtn",), data="digits", options=options, device="cpu").rows
    assert given_bits.pairs[0].exits == baseline.exits
    assert given_bits.pairs[0].swept[-1] == baseline.policies[-1]


def test_a_shared_threshold_by_hand() -> None:
    """Four samples, one exit: the two surest are right there, the third is wrong, the last is nowhere right."""
    confidence = np.array([[0.9, 1.0], [0.8, 1.0], [0.7, 1.0], [0.6, 1.0]])
    correct = np.array([[1, 1], [1, 1], [0, 1], [0, 0]])
    zeros = np.zeros((4, 2), dtype=np.float32)
    trace = Trace(
        exit_blocks=(1, 2),
        float_confidence=confidence, confidence=confidence, float_loss=zeros, loss=zeros,
        float_correct=correct, correct=correct, drift=zeros, noise=zeros,
        parts=(Part("block 1", "linear", 10, 1, "qkv"), Part("block 2", "linear", 10, 2, "qkv")),
        bits=BitSettings.uniform(4, 4, 2), task="classification", model="",
    )  # fmt: skip
    assert choose_shared(trace, 0.75) == pytest.approx((0.8,))
    assert choose_shared(trace, 0.5) == (0.0,)


@pytest.mark.parametrize(
    ("weights", "activations", "words"),
    [((), (4,), "No bits are given for weights"), ((4,), (9,), "Activations of 9 bits are impossible")],
)
def test_impossible_widths(weights: tuple[int, ...], activations: tuple[int, ...], words: str) -> None:
    with pytest.raises(MaqeeError, match=words):
        maqee.envelope(MODEL, weights=weights, activations=activations, data="digits")


def test_unknown_methods_are_noticed_at_once(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="did you mean repq"):
        maqee.envelope(tmp_path, ("erq", "repk"))


def make_point(metric: int, bops: int) -> EnvelopePoint:
    return EnvelopePoint(
        method="erq", bits="W4A4", threshold=0.5, metric=metric / 10, mean_exit=1.0, bops=float(bops),
        share_of_full_precision=0.1,
    )  # fmt: skip


@given(st.lists(st.builds(make_point, st.integers(0, 10), st.integers(1, 10))))
def test_nothing_on_the_envelope_is_dominated_and_all_else_is(points: list[EnvelopePoint]) -> None:
    kept = upper_envelope(points)
    assert all(point in points for point in kept)
    for one, other in pairwise(kept):
        assert one.bops < other.bops
        assert one.metric < other.metric
    for point in points:
        assert any(best.bops <= point.bops and best.metric >= point.metric for best in kept)
