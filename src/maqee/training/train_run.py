"""`maqee.train`: a recipe, by name or from a file, run into a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maqee.errors import MaqeeError
from maqee.training.recipe import Recipe, read_recipe
from maqee.training.shipped import find_recipe
from maqee.training.trainer import run_recipe
from maqee.values import plain


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """One stage of a training.

    Attributes:
        stage: name of its folder, such as "2-joint".
        train_seconds: how long it trained.
        evaluate_seconds: how long the calibration images took.
        calibration: the task's metric at every exit on calibration images, such as "accuracy@12".
        device: where it ran.
    """

    stage: str
    train_seconds: float
    evaluate_seconds: float
    calibration: Mapping[str, float]
    device: str


@dataclass(frozen=True, kw_only=True)
class Training:
    """A finished training.

    Attributes:
        folder: the run folder; each stage has a folder with its model in it.
        recipe: what was asked.
        stages: what came of it, stage by stage.
        environment: versions and hardware.
    """

    folder: Path
    recipe: Recipe
    stages: tuple[StageFigures, ...]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as train.json in the run folder has them."""
        return {
            "recipe": self.recipe.model_dump(mode="json"),
            "digest": self.recipe.digest(),
            "stages": plain(self.stages),
            "environment": plain(self.environment),
        }


def train(
    recipe: Recipe | str | Path,
    overrides: Sequence[str] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
) -> Training:
    """Train a backbone, its exits, or both, as a recipe says; called again, it goes on where it stopped.

    Args:
        recipe: a YAML file, the name of a recipe that comes with maqee, or a recipe that was read already.
        overrides: "key=value" with dotted keys, such as "stages.0.epochs=2"; not for a recipe that was read already.
        out: the run folder; runs/NAME when left out.
        device: the GPU if there is one.
    """
    if isinstance(recipe, Recipe):
        if overrides:
            raise MaqeeError("overrides: they are for a recipe's file or name; give them to read_recipe.")
        chosen = recipe
    else:
        chosen = read_recipe(find_recipe(str(recipe)), list(overrides or []))
    folder = Path("runs") / chosen.name if out is None else Path(out)
    summary = run_recipe(chosen, folder, device)
    return Training(
        folder=folder,
        recipe=chosen,
        stages=tuple(StageFigures(**entry) for entry in summary["stages"]),
        environment=summary["environment"],
    )
