"""What `maqee envelope` gives back: uniform widths with shared thresholds, and the best of them at every cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from maqee.evaluation.results import ExitFigures, PolicyFigures
from maqee.tasks import Task
from maqee.widths import BitPair

SWEPT = "swept on the test images, in the baselines' favour"


@dataclass(frozen=True, kw_only=True)
class UniformPair:
    """One method at the same widths everywhere, on the test images.

    Attributes:
        method: its name.
        pair: (weight, activation) bits of all blocks and exit heads.
        exits: every exit, full depth last.
        swept: one threshold for all exits, from eager to never.
        chosen: the shared threshold that costs least within a point of the pair's own full depth, by calibration
            images: what somebody would get who has not seen the test images.
    """

    method: str
    pair: BitPair
    exits: tuple[ExitFigures, ...]
    swept: tuple[PolicyFigures, ...]
    chosen: PolicyFigures

    @property
    def name(self) -> str:
        """The widths as people write them, for example W4A4."""
        return "W{}A{}".format(*self.pair)

    def to_json(self, metric: str) -> dict[str, Any]:
        """Plain values; of swept thresholds what a frontier needs, because there are many."""
        return {
            "method": self.method,
            "bits": self.name,
            "exits": [row.to_json() for row in self.exits],
            "swept": [
                {
                    "threshold": row.thresholds[0],
                    metric: row.metrics[metric],
                    "mean_exit": row.mean_exit,
                    "bops": row.bops,
                }
                for row in self.swept
            ],
            "chosen_on_calibration": self.chosen.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class EnvelopePoint:
    """A pair and a threshold that nothing cheaper is as good as.

    Attributes:
        method: quantization method.
        bits: the pair, as in "W4A4".
        threshold: of all exits; 2.0 is never.
        metric: the task's metric.
        mean_exit: mean block after which images leave.
        bops: expected bit operations of an image.
        share_of_full_precision: those, of the same model in full precision at full depth, without early heads.
    """

    method: str
    bits: str
    threshold: float
    metric: float
    mean_exit: float
    bops: float
    share_of_full_precision: float

    def to_json(self, metric: str) -> dict[str, Any]:
        """Plain values, the metric under its name."""
        values = asdict(self)
        return {metric: values.pop("metric"), **values}


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """All uniform widths of some methods, and their upper envelope.

    Attributes:
        model: short name of the model's folder.
        weights: hash of its weights.
        data: name of the images.
        images: how many.
        calibration_images: how many chose the thresholds that were not swept.
        seed: random seed of the draw of calibration images.
        fitted_weight_bits: of the weights that RepQ and RTN fitted the grids of activations with.
        task: what is predicted.
        full_precision: every exit of the model as it came.
        pairs: every method at every pair of widths.
        points: the upper envelope, by ascending cost.
        environment: versions and hardware.
    """

    model: str
    weights: str
    data: str
    images: int
    calibration_images: int
    seed: int
    fitted_weight_bits: int
    task: Task
    full_precision: tuple[ExitFigures, ...]
    pairs: tuple[UniformPair, ...]
    points: tuple[EnvelopePoint, ...]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee envelope --out` writes them."""
        names = ("model", "weights", "data", "images", "calibration_images", "seed", "fitted_weight_bits")
        metric = self.task.metric_name
        return {
            **{name: getattr(self, name) for name in names},
            "task": self.task.name,
            "metric": metric,
            "accuracy_is": "simulated",
            "thresholds": SWEPT,
            "full_precision": [row.to_json() for row in self.full_precision],
            "pairs": [row.to_json(metric) for row in self.pairs],
            "envelope": [point.to_json(metric) for point in self.points],
            "environment": dict(self.environment),
        }


def upper_envelope(points: Iterable[EnvelopePoint]) -> tuple[EnvelopePoint, ...]:
    """The points that nothing cheaper, or as cheap, is as good as: cost and metric both ascend."""
    found: list[EnvelopePoint] = []
    for point in sorted(points, key=lambda point: (point.bops, -point.metric)):
        if not found or point.metric > found[-1].metric:
            found.append(point)
    return tuple(found)


def points_of(pair: UniformPair, metric: str) -> list[EnvelopePoint]:
    """A pair at every threshold that it was measured with."""
    return [
        EnvelopePoint(
            method=pair.method,
            bits=pair.name,
            threshold=row.thresholds[0],
            metric=row.metrics[metric],
            mean_exit=row.mean_exit,
            bops=row.bops,
            share_of_full_precision=row.share_of_full_precision,
        )
        for row in (*pair.swept, pair.chosen)
    ]
