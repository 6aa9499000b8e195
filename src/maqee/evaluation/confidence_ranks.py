"""How well a confidence tells hard images from easy ones, at every exit.

An exit is taken where its confidence is high. That is worth something only if the images with high confidences are
those with good predictions, so the rank correlation of both is what confidences are compared by: thresholds can follow
any monotone change of a confidence, and no other. All confidences are taken from the same outputs in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.data import open_split
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.rank_correlation import rank_correlation, rank_correlations
from maqee.evaluation.record import Batch, evaluation_batches, run_exits
from maqee.exits import EarlyExitModel
from maqee.progress import Steps, steps
from maqee.runs import require_data
from maqee.runtime.loading import load
from maqee.tasks import Task, tasks
from maqee.values import plain

Floats = NDArray[np.float64]
SPLIT = "calibration"  # a confidence is chosen, and nothing is chosen on test images
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)
RESAMPLES = 500


@dataclass(frozen=True, kw_only=True)
class ExitRank:
    """One confidence at one exit.

    Attributes:
        block: the exit sits after this block.
        score: Spearman's rank correlation with the score of the images here, 1 is best; None where all images have the
            same score or the same confidence.
        gain: the same with what full depth adds to the score, -1 is best: those who leave should lose least.
        spread: least confidence, 10 % quantile, median, 90 % quantile and largest.
    """

    block: int
    score: float | None
    gain: float | None
    spread: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ConfidenceRank:
    """One confidence.

    Attributes:
        task: the name that selects it.
        exits: its ranks at every exit, full depth last.
        mean_score: mean rank correlation with the score over the early exits; None where an exit has none.
        mean_gain: likewise with what full depth adds.
        wins: share of bootstrap resamples of the images in which its mean rank correlation with the score is the
            largest of all: a best confidence that seldom wins again was best by chance.
    """

    task: str
    exits: tuple[ExitRank, ...]
    mean_score: float | None
    mean_gain: float | None
    wins: float


@dataclass(frozen=True, kw_only=True)
class ConfidenceRanks:
    """All confidences that fit a model, on calibration images.

    Attributes:
        run: name of the run.
        data: name of the images.
        images: how many.
        task: the run's own.
        score_name: what the score of an image is.
        precision: "float32", or "quantized" for a compressed run.
        confidences: in the order of the registry.
        best: the task with the largest mean rank correlation with the score; None where none has any.
        environment: versions and hardware.
    """

    run: str
    data: str
    images: int
    task: str
    score_name: str
    precision: str
    confidences: tuple[ConfidenceRank, ...]
    best: str | None
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee bench confidence --out` writes them."""
        values: dict[str, Any] = plain(self)
        return values


def rank_confidences(
    run: str | Path, *, data_root: str | Path | None = None, stage: str | None = None, device: str | None = None
) -> ConfidenceRanks:
    """Rank correlation of every confidence with the score of the calibration images, at every exit of a run.

    Args:
        run: a folder written by `maqee train` or `maqee compress`.
        data_root: where the data lie now; where they lay when left out.
        stage: of a trained run, the stage to look at; the last one when left out.
        device: the GPU if there is one.
    """
    folder = Path(run)
    ready = load(folder, stage=stage).to(pick_device(device))
    if not ready.model.num_exits:
        raise MaqeeError(f"{folder} has no early exits, where a confidence would decide: train some (maqee exits).")
    data = open_split(require_data(folder, path=data_root), ready.model.backbone, SPLIT)
    data.require(ready.task.targets, ready.task_name)
    candidates = same_targets(ready.task)
    with steps("measuring", len(data)) as bar:
        confidences, scores = collect_confidences(ready.model, evaluation_batches(ready.model, data), candidates, bar)
    shares = win_shares(confidences, scores)
    found = tuple(
        rank_confidence(task.name, ready.model.exit_blocks, values, scores, wins)
        for task, values, wins in zip(candidates, confidences, shares, strict=True)
    )
    return ConfidenceRanks(
        run=folder.resolve().name,
        data=data.name,
        images=len(data),
        task=ready.task_name,
        score_name=ready.task.score_name,
        precision="float32" if ready.compression is None else "quantized",
        confidences=found,
        best=best_confidence(found),
        environment=describe_environment(),
    )


def same_targets(task: Task) -> list[Task]:
    """Every task with the same targets: they differ in their confidence."""
    return [tasks[name] for name in tasks if tasks[name].targets == task.targets]


def collect_confidences(
    network: EarlyExitModel, batches: Iterable[Batch], candidates: Sequence[Task], bar: Steps | None = None
) -> tuple[list[Floats], Floats]:
    """Confidences of each candidate, and the scores of the images: arrays of (images, exits + 1)."""
    confidences: list[list[Tensor]] = [[] for _ in candidates]
    scores: list[Tensor] = []
    done = 0
    for outputs, targets in run_exits(network, batches):
        scores.append(torch.stack([candidates[0].score(output, targets) for output in outputs], dim=1).cpu())
        for values, task in zip(confidences, candidates, strict=True):
            values.append(torch.stack([task.confidence(output) for output in outputs], dim=1).cpu())
        done += len(targets)
        if bar is not None:
            bar.update(done)
    return [_joined(values) for values in confidences], _joined(scores)


def rank_confidence(name: str, blocks: Sequence[int], confidence: Floats, score: Floats, wins: float) -> ConfidenceRank:
    """Compare one confidence with the scores.

    Args:
        name: of the task.
        blocks: where the exits sit, full depth last.
        confidence: (images, exits + 1).
        score: (images, exits + 1).
        wins: its share of the resamples.
    """
    gain = score[:, -1:] - score  # (images, exits + 1)
    exits = tuple(
        ExitRank(
            block=block,
            score=rank_correlation(confidence[:, index], score[:, index]),
            gain=rank_correlation(confidence[:, index], gain[:, index]),
            spread=tuple(np.quantile(confidence[:, index], SHARES).tolist()),
        )
        for index, block in enumerate(blocks)
    )
    early = exits[:-1]
    return ConfidenceRank(
        task=name,
        exits=exits,
        mean_score=_mean([found.score for found in early]),
        mean_gain=_mean([found.gain for found in early]),
        wins=wins,
    )


def best_confidence(found: Sequence[ConfidenceRank]) -> str | None:
    """The name of the one that ranks images best by their score, the first of equals."""
    ranked = [(rank.mean_score, rank.task) for rank in found if rank.mean_score is not None]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def win_shares(confidences: Sequence[Floats], score: Floats, resamples: int = RESAMPLES) -> list[float]:
    """How often each confidence ranks best when the images are drawn anew, with replacement; the first of equals.

    Args:
        confidences: of each candidate, (images, exits + 1).
        score: (images, exits + 1).
        resamples: how many draws; the same ones every time.
    """
    random = np.random.default_rng(0)
    early, wanted = np.stack(confidences)[..., :-1], score[:, :-1]  # (candidates, images, exits), (images, exits)
    wins = np.zeros(len(early))
    for _ in range(resamples):
        drawn = random.integers(len(score), size=len(score))
        means = rank_correlations(early[:, drawn], wanted[drawn]).mean(axis=1)  # (candidates,)
        if not np.isnan(means).all():
            wins[np.nanargmax(means)] += 1
    return [float(share) for share in wins / resamples]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _joined(parts: list[Tensor]) -> Floats:
    return torch.cat(parts).double().numpy()
