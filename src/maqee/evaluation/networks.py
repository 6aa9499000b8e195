"""A network by its name, with exits or without."""

from __future__ import annotations

from pathlib import Path

import torch

from maqee.exits import EarlyExitModel
from maqee.io import read_json
from maqee.models import Backbone, load_backbone

Network = Backbone | EarlyExitModel


def load_network(model: str | Path) -> Network:
    """An early-exit model if the folder holds one, else a backbone. Presets get the same random weights every time."""
    config = Path(model) / "config.json"
    if config.is_file() and read_json(config).get("exits") is not None:
        return EarlyExitModel.load(Path(model))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load_backbone(model)


def short_name(model: str | Path) -> str:
    """The model's name without the place on this machine: a file's name, a folder's with its parent's."""
    path = Path(model)
    if path.is_dir():
        return "/".join(path.resolve().parts[-2:])
    return path.name if path.is_file() else str(model)
