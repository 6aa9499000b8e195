"""What measuring gives back: values with names, that know how to become JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ExitFigures:
    """One exit, or full depth.

    Attributes:
        block: the exit sits after this block.
        metrics: the task's metric under its name, and what else the task has to tell.
        head: kind of its head; "backbone" for the backbone's own end.
        score: mean score of an image, the figure that a search works with.
        loss: mean loss.
        confidence: mean confidence.
        macs: multiply-accumulates of a model that always leaves there, all exits before it being closed.
    """

    block: int
    metrics: Mapping[str, float]
    head: str | None = None
    score: float | None = None
    loss: float | None = None
    confidence: float | None = None
    macs: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, what was not measured left out."""
        rest = {name: value for name, value in asdict(self).items() if name != "metrics" and value is not None}
        return {**rest, **self.metrics}


@dataclass(frozen=True, kw_only=True)
class PolicyFigures:
    """A policy on a set of images.

    Attributes:
        thresholds: of every exit.
        metrics: the task's metric under its name, and what else the task has to tell.
        mean_exit: mean block after which images leave.
        exit_mass: share of the images that leaves at each exit and at full depth.
        macs: expected multiply-accumulates of an image.
        bops: expected bit operations of an image.
        share_of_full_precision: those, of the same model in full precision at full depth, without early heads.
        calibration_target: the score on calibration images that the policy was chosen for, if it was.
    """

    thresholds: tuple[float, ...]
    metrics: Mapping[str, float]
    mean_exit: float
    exit_mass: tuple[float, ...]
    macs: float
    bops: float
    share_of_full_precision: float
    calibration_target: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = asdict(self)
        metrics = values.pop("metrics")
        if values["calibration_target"] is None:
            del values["calibration_target"]
        return values | {"thresholds": list(self.thresholds), "exit_mass": list(self.exit_mass), **metrics}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A trained or a compressed run on test images. All figures of policies are simulated.

    Attributes:
        run: its name.
        data: name of the images.
        images: how many.
        task: what is predicted.
        metric: the name of the task's metric.
        seed: random seed of the run.
        exits: every exit, full depth last.
        policies: one threshold for all exits, from eager to never.
        plan: a compressed run's own policy: the paper's standard configuration.
        controlled: that policy with all thresholds moved by one offset, to the cheapest that reaches the target on
            calibration images: the paper's controlled performance. None where no offset does.
        controlled_target: the target.
        frontier: the cheapest policies by what they reach on calibration images.
        facts: what else is known about the run.
        environment: versions and hardware.
    """

    run: str
    data: str
    images: int
    task: str
    metric: str
    seed: int
    exits: tuple[ExitFigures, ...]
    policies: tuple[PolicyFigures, ...] = ()
    plan: PolicyFigures | None = None
    controlled: PolicyFigures | None = None
    controlled_target: float | None = None
    frontier: tuple[PolicyFigures, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee eval --out` writes them."""
        names = ("run", "data", "images", "task", "metric", "seed")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        values |= {**self.facts, "exits": [row.to_json() for row in self.exits]}
        policies = [row.to_json() for row in self.policies]
        if self.plan is None:
            values["policies"] = policies
        else:
            values["plan"] = self.plan.to_json()
            values["controlled"] = None if self.controlled is None else self.controlled.to_json()
            values["controlled_target"] = self.controlled_target
            values["frontier"] = [row.to_json() for row in self.frontier]
            values["shared_thresholds"] = policies
        return values | {"environment": dict(self.environment)}
