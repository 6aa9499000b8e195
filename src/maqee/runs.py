"""The layout of run folders: file names, stages in their order, what a folder is and what it was made from.

Nothing else in maqee spells a file name of a run folder or sorts its stages.

    RUN/                  of `maqee train`          RUN/                    of `maqee compress`
      recipe.json         what was asked              request.json          what was asked
      1-finetune/         a finished stage            plan.json             bits and thresholds
        config.json       the model's shape           trace.safetensors     the calibration pass
        model.safetensors its weights                 config.json           the quantized model
        trained_on.safetensors  image hashes          model.safetensors     its codes
        stage.json        says that it is finished    source.json           where model and data lie
      train.json          what happened               examples.json         a few images for each exit
                                                      report.html, report/  the page, its figures as files
                                                      README.md             the model card
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maqee.errors import MaqeeError
from maqee.io import read_json

CONFIG, WEIGHTS, PREPROCESSING = "config.json", "model.safetensors", "preprocessor_config.json"
RECIPE, STAGE, SUMMARY = "recipe.json", "stage.json", "train.json"
TRAINED_ON = "trained_on.safetensors"
REQUEST, SEARCH, PLAN, TRACE, SOURCE = "request.json", "search.json", "plan.json", "trace.safetensors", "source.json"
EXAMPLES, PAGE, CARD = "examples.json", "report.html", "README.md"
SNAPSHOTS, TRAINING, UNRECOVERED, FRONTIER = "snapshots", "training", "unrecovered", "frontier"
SEEN = "calibration_seen_in_training"  # a key of source.json


@dataclass(frozen=True)
class DataSource:
    """The data set of a run, so that it need not be named again.

    Attributes:
        name: in the registry of readers.
        path: where it lies; None for data that come with maqee.
        holdout: how many training images became the calibration set; None is the data set's own custom.
        seed: decides which.
    """

    name: str
    path: Path | None = None
    holdout: int | None = None
    seed: int = 0

    def at(self, path: Path | str | None) -> DataSource:
        """The same data in another place, if one is given."""
        return self if path is None else DataSource(self.name, Path(path), self.holdout, self.seed)

    def to_json(self) -> dict[str, Any]:
        """Plain values; the path is absolute, because a run is read from anywhere."""
        path = None if self.path is None else str(self.path.resolve())
        return {"data": self.name, "path": path, "holdout": self.holdout, "seed": self.seed}


def is_compressed(folder: Path) -> bool:
    """Whether a folder was written by `maqee compress`."""
    return (folder / PLAN).is_file()


def is_trained(folder: Path) -> bool:
    """Whether a folder was written by `maqee train`."""
    return (folder / RECIPE).is_file()


def stage_name(index: int, kind: str) -> str:
    """The folder of a stage, counted from 0: 1-finetune."""
    return f"{index + 1}-{kind}"


def frontier_folders(run: Path) -> list[tuple[float, Path]]:
    """The folders of a frontier's plans with the drop that each allows, the smallest first."""
    named = ((re.fullmatch(r"drop-(\d+\.\d+)", found.name), found) for found in (run / FRONTIER).glob("drop-*"))
    return sorted((float(match[1]), found) for match, found in named if match and is_compressed(found))


def finished_stages(run: Path) -> list[Path]:
    """The folders of finished stages, the first one first."""
    return sorted((found.parent for found in run.glob(f"*/{STAGE}")), key=_number)


def _number(folder: Path) -> tuple[int, str]:
    """By the number a stage's name begins with: the tenth stage comes after the ninth."""
    match = re.match(r"\d+", folder.name)
    return (int(match[0]) if match else 0), folder.name


def stage_folder(run: Path, stage: str | None = None) -> Path:
    """The folder of a finished stage; the last one when left out."""
    finished = finished_stages(run)
    if not finished:
        raise MaqeeError(f"{run} holds no finished stage: let maqee train go on.")
    if stage is None:
        return finished[-1]
    if run / stage not in finished:
        raise MaqeeError(f"{run} has no finished stage {stage!r}: choose {', '.join(path.name for path in finished)}.")
    return run / stage


def model_folder(path: Path) -> Path:
    """The folder that holds the model: the last stage of a training run, or the folder itself."""
    stages = finished_stages(path)
    return stages[-1] if stages else path


def require_folder(path: Path) -> Path:
    """The folder; the user's error where there is none."""
    if not path.is_dir():
        raise MaqeeError(f"{path} is no folder: give one written by maqee train, or any other with a model with exits.")
    return path


def resolve_model(model: str | Path) -> str | Path:
    """What a user calls a model, as models are loaded: of a training run its last stage, anything else as it is."""
    return model_folder(Path(model)) if Path(model).is_dir() else model


def read_recipe(path: Path) -> dict[str, Any]:
    """The recipe that a run, or the stage of one, was trained by; empty where there is none."""
    for folder in (path, path.parent):
        if is_trained(folder):
            recipe = read_json(folder / RECIPE).get("recipe")
            if not isinstance(recipe, dict):
                raise MaqeeError(f"{folder / RECIPE} holds no recipe: give a folder written by maqee train.")
            return recipe
    return {}


def require_recipe(run: Path) -> dict[str, Any]:
    """The recipe of a run; a folder without one is the user's error."""
    if not run.is_dir():
        raise MaqeeError(f"{run} is no folder: give one written by maqee train or maqee compress.")
    if not is_trained(run):
        raise MaqeeError(f"{run} was written neither by maqee train ({RECIPE}) nor by maqee compress ({PLAN}).")
    return read_recipe(run)


def read_source(run: Path) -> dict[str, Any]:
    """What `maqee compress` noted about model and data."""
    if not (run / SOURCE).is_file():
        raise MaqeeError(f"{run} has no {SOURCE}, which says where model and data lie: restore the file.")
    source = read_json(run / SOURCE)
    if not isinstance(source.get("data"), dict):
        raise MaqeeError(f"{run / SOURCE}: key 'data' is missing: restore the file.")
    return source


def data_of(run: Path) -> DataSource | None:
    """The data set that a run was trained or compressed with; None where nothing says."""
    if is_compressed(run) and (run / SOURCE).is_file():
        stored = read_source(run)["data"]
        return _source(stored["data"], stored.get("path"), stored.get("holdout"), stored.get("seed", 0))
    recipe = read_recipe(run)
    if not recipe:
        return None
    stored, place = recipe["data"], _stored_place(run)
    return _source(stored["name"], place or stored.get("path"), stored.get("holdout"), recipe.get("seed", 0))


def require_data(run: Path, name: str | None = None, path: Path | str | None = None) -> DataSource:
    """The data set of a run, unless another name or place is given; the user's error where nothing says."""
    known = data_of(run)
    if name is not None and (known is None or known.name != name):
        return DataSource(name, None if path is None else Path(path))
    if known is None:
        raise MaqeeError(f"{run} does not say which data it was trained on: name the data set and where it lies.")
    return known.at(path)


def task_of(run: Path) -> str:
    """The task that a model was trained for; classification where nothing says."""
    return str(read_recipe(run).get("task", "classification"))


def short_name(model: str | Path) -> str:
    """The model's name without the place on this machine: a file's name, a folder's with its parent's."""
    path = Path(model)
    if path.is_dir():
        return "/".join(path.resolve().parts[-2:])
    return path.name if path.is_file() else str(model)


def _source(name: str, path: str | None, holdout: int | None, seed: int) -> DataSource:
    return DataSource(name, None if path is None else Path(path), holdout, seed)


def _stored_place(run: Path) -> str | None:
    """Where the data of a training run lay, as an absolute path; runs of older versions do not say."""
    folder = run if is_trained(run) else run.parent
    place = read_json(folder / RECIPE).get("data_path")
    return place if isinstance(place, str) else None
