"""A network with exits or without: the few questions that both answer, so that nobody else has to ask which it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits.early_exit import EarlyExitModel
from maqee.exits.segment import Confidence
from maqee.io import read_json
from maqee.models import Backbone, load_backbone
from maqee.models.load import backbone_from_json, save_backbone
from maqee.tasks.classification import max_probability

Network = Backbone | EarlyExitModel


def backbone_of(network: Network) -> Backbone:
    """The network without its exits."""
    return network.backbone if isinstance(network, EarlyExitModel) else network


def exit_blocks_of(network: Network) -> tuple[int, ...]:
    """The block after which each exit sits, full depth last."""
    return network.exit_blocks if isinstance(network, EarlyExitModel) else (network.depth,)


def all_outputs(network: Network, images: Tensor) -> list[Tensor]:
    """What every exit says about normalised images, full depth last, in single precision."""
    outputs = network.forward_all(images).outputs if isinstance(network, EarlyExitModel) else [network(images)]
    return [output.float() for output in outputs]


def has_exits(folder: str | Path) -> bool:
    """Whether a folder holds a model with exits that maqee wrote."""
    config = Path(folder) / "config.json"
    return config.is_file() and read_json(config).get("exits") is not None


def load_network(source: str | Path, confidence: Confidence = max_probability) -> Network:
    """A model with exits if the folder holds one, else a backbone. Presets get the same random weights every time."""
    if has_exits(source):
        return EarlyExitModel.load(Path(source), confidence)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load_backbone(source)


def load_with_exits(folder: Path, confidence: Confidence = max_probability) -> EarlyExitModel:
    """The model with exits in a folder; one without is the user's error."""
    if not (folder / "config.json").is_file():
        raise MaqeeError(f"{folder} holds no model: give a folder written by maqee train, or one of its stages.")
    if not has_exits(folder):
        raise MaqeeError(f"{folder} holds a model without exits: add some with `maqee exits` or `maqee train` first.")
    return EarlyExitModel.load(folder, confidence)


def load_compressible(source: str | Path, confidence: Confidence = max_probability) -> EarlyExitModel:
    """A model with its exits, or any other model as one that has none: bits can be chosen for it too."""
    network = load_network(source, confidence)
    return network if isinstance(network, EarlyExitModel) else EarlyExitModel(network, (), (), confidence=confidence)


def save_network(network: Network, folder: Path) -> None:
    """Write a folder that `load_network` reads back."""
    if isinstance(network, EarlyExitModel):
        network.save(folder)
    else:
        save_backbone(network, folder)


def network_from_json(values: Mapping[str, Any], source: str) -> Network:
    """A network of the shape that `to_json` of either kind described, with fresh weights; errors name `source`."""
    backbone = backbone_from_json(dict(values), source)
    exits, final = values.get("exits"), values.get("final")
    if exits is None:
        if final is not None:
            raise MaqeeError(f"{source}: key 'final' is {final!r:.60}, but key 'exits' says that there are none.")
        return backbone
    try:
        return EarlyExitModel(backbone, [entry["block"] for entry in exits], [entry["head"] for entry in exits], final)
    except MaqeeError as error:
        raise MaqeeError(f"{source}: key 'exits': {error}") from error
