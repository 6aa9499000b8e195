"""Miniatures for segmentation and detection: data sets on disk, and models that have seen them for a moment."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from maqee.compression import CompressOptions, RecoverySettings
from maqee.training import read_recipe, run_recipe
from maqee.training.recipe import AugmentSection
from tests.training.test_detection import recipe_for, write_shapes
from tests.training.test_segmentation import write_pictures, write_recipe


class Miniature(NamedTuple):
    """A trained run, and the data that it was trained on."""

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
    recipe = read_recipe(write_recipe(folder, root), ["stages.0.epochs=6", "exits.positions=[1,2]"])
    run_recipe(recipe, folder / "run", "cpu")
    return Miniature("segmentation", folder / "run", "camvid", root)


def detection(folder: Path) -> Miniature:
    """One coloured rectangle an image; 16 calibration images."""
    root = write_shapes(folder / "shapes", count=16)
    run_recipe(read_recipe(recipe_for(root, folder / "recipe.yaml", epochs=30)), folder / "run", "cpu")
    return Miniature("detection", folder / "run", "coco", root)


def options(task: str, **changes: object) -> CompressOptions:
    """Few images, all that are left measured."""
    recovery = RecoverySettings(batch_size=4, lr=1e-3, augment=AugmentSection())
    values = {"method": "erq", "task": task, "fit_images": 4, "recovery": recovery, **changes}
    return CompressOptions(**values)  # type: ignore[arg-type]
