"""Runs to show: models that nobody trained, in folders as `maqee train` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from maqee.data import open_data
from maqee.exits import add_exits
from maqee.io import write_json
from maqee.models import load_backbone
from tests.data import makers
from tests.training.test_detection import write_shapes

EXITS = (1, 2)


def write_run(folder: Path, task: str, data: Mapping[str, object], preset: str, scheme: str, **load: object) -> Path:
    """A run of one stage with fresh weights."""
    torch.manual_seed(0)
    model = add_exits(load_backbone(preset, **load), scheme, positions=EXITS)  # type: ignore[arg-type]
    model.save(folder / "1-joint")
    write_json(folder / "1-joint" / "stage.json", {})
    recipe = {"name": "small", "seed": 0, "task": task, "data": {"path": None, "holdout": None, **data}}
    write_json(folder / "recipe.json", {"recipe": recipe})
    return folder


def classification(folder: Path) -> Path:
    """On the bundled digits."""
    return write_run(folder / "run", "classification", {"name": "digits"}, "vit-digits", "mlp")


def segmentation(folder: Path) -> Path:
    """Small pictures of noise."""
    data = makers.write_tar(folder / "camvid_small.tar", makers.camvid_members(count=3))
    classes = len(open_data("camvid", data).test.classes)
    given = {"name": "camvid", "path": str(data)}
    return write_run(folder / "run", "segmentation", given, "test-vit", "segformer", num_classes=classes)


def detection(folder: Path) -> Path:
    """Coloured rectangles, one of them with a name that looks like a formula."""
    data = write_shapes(folder / "shapes", count=3)
    for split in ("train", "val", "test"):
        values = json.loads((data / f"{split}.json").read_text())
        values["categories"][0]["name"] = "$x^{ a name that is far too long to stand on a box"
        (data / f"{split}.json").write_text(json.dumps(values))
    return write_run(folder / "run", "detection", {"name": "coco", "path": str(data)}, "test-yolos", "detection")
