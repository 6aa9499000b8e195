"""Miniatures for segmentation and detection: data sets on disk, and models that have seen such images before."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from maqee.compression import CompressOptions, RecoverySettings
from maqee.io import write_json
from maqee.training import read_recipe
from maqee.training.recipe import AugmentSection, Recipe
from tests.helpers import FIXTURES
from tests.training.test_detection import recipe_for, write_shapes
from tests.training.test_segmentation import write_pictures, write_recipe


class Miniature(NamedTuple):
    """A trained run, and the data that belongs to it."""

    task: str
    run: Path
    data: str
    root: Path

    def arguments(self) -> list[str]:
        """Of the commands that start from a trained run; the task is the run's own."""
        return [str(self.run), "--data", self.data, "--data-root", str(self.root), "--device", "cpu"]


def segmentation(folder: Path) -> Miniature:
    """Three coloured areas with an unlabelled edge; 16 calibration images."""
    root = write_pictures(folder, train=16, val=16, test=5)
    recipe = read_recipe(write_recipe(folder, root), ["exits.positions=[1,2]"])
    return Miniature("segmentation", _write_run(recipe, folder / "run"), "camvid", root)


def detection(folder: Path) -> Miniature:
    """One coloured rectangle an image; 16 calibration images."""
    root = write_shapes(folder / "shapes", count=16)
    recipe = read_recipe(recipe_for(root, folder / "recipe.yaml", epochs=30))
    return Miniature("detection", _write_run(recipe, folder / "run"), "coco", root)


def _write_run(recipe: Recipe, run: Path) -> Path:
    """The folder that training by this recipe leaves, as far as it is read again, with the weights of the fixtures."""
    shutil.copytree(FIXTURES / recipe.task, run / "1-joint")
    write_json(run / "1-joint" / "stage.json", {})
    write_json(run / "recipe.json", {"digest": recipe.digest(), "recipe": recipe.model_dump(mode="json")})
    return run


def options(task: str, **changes: object) -> CompressOptions:
    """Few images, all that are left measured."""
    recovery = RecoverySettings(batch_size=4, lr=1e-3, augment=AugmentSection())
    values = {"method": "erq", "task": task, "fit_images": 4, "recovery": recovery, **changes}
    return CompressOptions(**values)  # type: ignore[arg-type]
