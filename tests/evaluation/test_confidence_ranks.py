"""Rank correlations by hand, and confidences compared on runs of every task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

import maqee
from maqee.data import open_data
from maqee.errors import MaqeeError
from maqee.evaluation.confidence_ranks import (
    ConfidenceRank,
    best_confidence,
    collect_confidences,
    rank_confidence,
    same_targets,
    win_shares,
)
from maqee.evaluation.rank_correlation import rank_correlation, rank_correlations
from maqee.evaluation.record import evaluation_batches, measure_exits
from maqee.exits import EarlyExitModel, load_with_exits
from maqee.io import read_json
from maqee.models.load import save_backbone
from maqee.tasks import segmentation, tasks
from tests.compression import dense
from tests.helpers import invoke, save_digits_model
from tests.runtime import makers

# --- by hand ---------------------------------------------------------------------------------------------------------


def test_rank_correlation_by_hand() -> None:
    assert rank_correlation([1, 2, 3, 4], [0.1, 0.2, 0.3, 9.0]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15)
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5 of variances 4.5 and 5.
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


def test_what_has_no_order_has_no_rank_correlation() -> None:
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None
    assert rank_correlation([1, 2, 3], [0, 0, 0]) is None
    assert rank_correlation([1], [2]) is None


whole = arrays(np.int64, 12, elements=st.integers(0, 5))


@given(one=whole, other=whole)
def test_rank_correlation_sees_nothing_but_order(one: np.ndarray, other: np.ndarray) -> None:
    found = rank_correlation(one, other)
    assert found == rank_correlation(np.exp(one), other**3)
    if found is not None:
        assert found == pytest.approx(spearmanr(one, other).statistic)


def test_every_column_is_correlated_with_its_own() -> None:
    random = np.random.default_rng(0)
    one, other = random.integers(0, 6, (3, 20, 4)).astype(float), random.random((20, 4))
    found = rank_correlations(one, other)
    assert found.shape == (3, 4)
    for candidate in range(3):
        for column in range(4):
            wanted = spearmanr(one[candidate, :, column], other[:, column]).statistic
            assert found[candidate, column] == pytest.approx(wanted)


def test_who_wins_when_images_are_drawn_anew() -> None:
    score = np.stack([np.arange(30.0), np.arange(30.0)], axis=1)  # one early exit, and full depth
    flat, right, wrong = np.zeros((30, 2)), 2 * score, -score
    assert win_shares([flat, wrong, right, right], score, 20) == [0, 0, 1, 0]
    assert win_shares([flat], score, 20) == [0]
    random = np.random.default_rng(1)
    even = win_shares([random.random((30, 2)) for _ in range(3)], score)
    assert even == win_shares(list(np.random.default_rng(1).random((3, 30, 2))), score)
    assert sum(even) == pytest.approx(1)
    assert max(even) < 1


def test_one_confidence_by_hand() -> None:
    score = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.5]])  # full depth adds 0.8, 0.6 and 0.2
    confidence = np.array([[0.5, 0.7], [0.6, 0.7], [0.8, 0.7]])
    found = rank_confidence("segmentation", (2, 4), confidence, score, 0.0)
    early, full = found.exits
    assert (early.block, full.block) == (2, 4)
    assert early.score == pytest.approx(1)
    assert early.gain == pytest.approx(-1)
    assert early.spread == pytest.approx((0.5, 0.52, 0.6, 0.76, 0.8))
    assert (full.score, full.gain) == (None, None)  # one confidence for all, and nothing is added there
    assert (found.mean_score, found.mean_gain) == (early.score, early.gain)


def test_the_mean_is_over_early_exits_that_all_have_a_rank() -> None:
    score = np.array([[0.1, 0.1, 0.9], [0.2, 0.3, 0.8], [0.3, 0.2, 0.5]])
    confidence = np.array([[0.1, 0.1, 0.3], [0.2, 0.2, 0.2], [0.3, 0.3, 0.1]])
    assert rank_confidence("a", (1, 2, 3), confidence, score, 0.0).mean_score == pytest.approx((1 + 0.5) / 2)
    confidence[:, 1] = 0.5
    assert rank_confidence("a", (1, 2, 3), confidence, score, 0.0).mean_score is None


def test_the_best_is_the_first_of_the_largest_means() -> None:
    ranks = [
        ConfidenceRank(task=name, exits=(), mean_score=mean, mean_gain=None, wins=0.0)
        for name, mean in (("a", None), ("b", 0.2), ("c", 0.5), ("d", 0.5))
    ]
    assert best_confidence(ranks) == "c"
    assert best_confidence(ranks[:1]) is None


def test_candidates_are_the_tasks_with_the_same_targets() -> None:
    assert [task.name for task in same_targets(tasks["segmentation-median"])] == list(segmentation.CONFIDENCES)
    assert [task.name for task in same_targets(tasks["detection"])] == ["detection"]


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["segmentation", "detection"])
def mini(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dense.Miniature:
    made: dense.Miniature = getattr(dense, request.param)(tmp_path_factory.mktemp(request.param))
    return made


def test_confidences_and_scores_are_those_of_an_evaluation(mini: dense.Miniature) -> None:
    images = open_data(mini.data, mini.root).calibration
    candidates = same_targets(tasks[mini.task])
    model = EarlyExitModel.load(mini.run / "1-joint").eval()
    confidences, scores = collect_confidences(model, evaluation_batches(model, images, 5), candidates)
    assert scores.shape == (16, 3)
    for task, found in zip(candidates, confidences, strict=True):
        record = measure_exits(model, images, task, batch_size=5).record
        assert np.array_equal(found, record.confidence)
        assert np.array_equal(scores, record.score)


def test_the_command_writes_what_the_function_gives(mini: dense.Miniature, tmp_path: Path) -> None:
    out = tmp_path / "ranks.json"
    done = invoke("bench", "confidence", str(mini.run), "--device", "cpu", "--out", str(out))
    assert done.exit_code == 0, done.output
    found = maqee.rank_confidences(mini.run, device="cpu")
    assert read_json(out) == found.to_json()
    assert (found.task, found.images, found.precision) == (mini.task, 16, "float32")
    blocks = list(load_with_exits(mini.run / "1-joint").exit_blocks)
    assert [[row.block for row in rank.exits] for rank in found.confidences] == [blocks] * len(found.confidences)
    lines = done.output.splitlines()
    for rank in found.confidences:
        assert sum(line.split()[:1] == [rank.task] for line in lines) == 3, rank.task
        assert all(list(row.spread) == sorted(row.spread) for row in rank.exits)
    assert found.best is None or any(line.endswith(found.best) for line in lines)


def test_classifiers_have_ranks_too() -> None:
    """A score of 0 or 1 has ties and an order all the same."""
    confidence, score = torch.tensor([[0.4, 0.9], [0.6, 0.9], [0.8, 0.9]]), torch.tensor([[0.0, 1], [1, 1], [1, 1]])
    found = rank_confidence("classification", (1, 2), confidence.double().numpy(), score.double().numpy(), 0.0)
    assert found.mean_score == pytest.approx(1.5 / (2 * 1.5) ** 0.5)


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="does not say which data it was trained on"):
        maqee.rank_confidences(save_digits_model(tmp_path / "model"), device="cpu")
    with pytest.raises(MaqeeError, match="is no folder"):
        maqee.rank_confidences(tmp_path / "nowhere")
    save_backbone(makers.small_model().backbone, tmp_path / "plain")
    with pytest.raises(MaqeeError, match="has no early exits"):
        maqee.rank_confidences(tmp_path / "plain", device="cpu")
