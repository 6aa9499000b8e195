"""Getting tensors and configuration values out of files, folders, the Hub and live modules."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.io import read_json
from maqee.models.convert import live_values
from maqee.tensors import read_tensors

_WEIGHT_FILES = ("model.safetensors", "pytorch_model.safetensors", "pytorch_model.bin")
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
_INDEX_FILE = "model.safetensors.index.json"
_NESTED_UNDER = ("state_dict", "model", "model_state_dict", "teacher")


@dataclass(frozen=True)
class Checkpoint:
    """Tensors under their own names, the values of the config files beside them, and what to call each in errors.

    Attributes:
        module: the live module that the tensors came from, if they did.
    """

    source: str
    state: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    config_source: str = ""
    preprocessor: dict[str, Any] = field(default_factory=dict)
    preprocessor_source: str = ""
    module: nn.Module | None = None


def read_module(module: nn.Module) -> Checkpoint:
    """A live module of transformers or timm, through its state dict; neither library is imported."""
    config = getattr(module, "config", None)
    values: dict[str, Any] = dict(config.to_dict()) if config is not None and hasattr(config, "to_dict") else {}
    if isinstance(pretrained := getattr(module, "pretrained_cfg", None), dict):
        values["pretrained_cfg"] = pretrained
    values = {**live_values(module), **values}
    state = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    name = type(module).__name__
    return Checkpoint(name, state, values, f"the configuration of {name}", module=module)


def read_file(path: Path) -> Checkpoint:
    """A single .safetensors, .pth, .pt or .bin file, with the config files that lie beside it."""
    return _with_config(_read_weights_file(path), path.parent)


def _read_weights_file(path: Path) -> Checkpoint:
    if path.suffix == ".safetensors":
        return Checkpoint(str(path), read_tensors(path))
    if path.suffix in (".pth", ".pt", ".bin"):
        return Checkpoint(str(path), _read_torch(path))
    raise MaqeeError(f"{path} is neither a .safetensors nor a .pth/.pt/.bin file: convert it first.")


def read_folder(folder: Path) -> Checkpoint:
    """A folder with config.json and weights, as transformers, timm's Hub copies and maqee write it."""
    if not (folder / "config.json").is_file():
        raise MaqeeError(f"{folder} has no config.json: give the folder that save_pretrained wrote, or a weights file.")
    return _with_config(_read_weights(folder), folder)


def _with_config(weights: Checkpoint, folder: Path) -> Checkpoint:
    config = folder / "config.json"
    preprocessor, preprocessor_source = _read_preprocessor(folder)
    return replace(
        weights,
        config=read_json(config) if config.is_file() else {},
        config_source=str(config),
        preprocessor=preprocessor,
        preprocessor_source=preprocessor_source,
    )


def _read_preprocessor(folder: Path) -> tuple[dict[str, Any], str]:
    """What transformers prefers: the image processor within processor_config.json, else preprocessor_config.json."""
    for name in _PROCESSOR_FILES:
        path = folder / name
        values = read_json(path) if path.is_file() else {}
        if name == _PROCESSOR_FILES[0]:  # it holds the processors of all kinds of input, and often no image processor
            values = values.get("image_processor", {})
        if isinstance(values, dict) and values:
            return values, str(path)
    return {}, ""


def _read_weights(folder: Path) -> Checkpoint:
    if (folder / _INDEX_FILE).is_file():
        return Checkpoint(str(folder / _INDEX_FILE), _read_shards(folder))
    for name in _WEIGHT_FILES:
        if (folder / name).is_file():
            return _read_weights_file(folder / name)
    raise MaqeeError(f"{folder} holds no weights: expected one of {', '.join((*_WEIGHT_FILES, _INDEX_FILE))}.")


def download(name: str) -> Path:
    """Fetch a Hub repository's config and weights into the local cache and return the folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    safe = ["config.json", *_PROCESSOR_FILES, *_WEIGHT_FILES[:2], "model*.safetensors", _INDEX_FILE]
    try:
        folder = Path(snapshot_download(name, allow_patterns=safe))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*safe, _WEIGHT_FILES[2]]))
        return folder
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise MaqeeError(
            f"{name!r} is no local file or folder and could not be fetched from the Hub ({_reason(error)})."
        ) from error


def _reason(error: Exception) -> str:
    """The first sentence of another library's error; what follows is advice for its own callers."""
    return re.split(r"\n|[.!] ", str(error).strip())[0].rstrip(".") or type(error).__name__


def _read_shards(folder: Path) -> dict[str, Tensor]:
    index = read_json(folder / _INDEX_FILE).get("weight_map")
    if not isinstance(index, dict):
        raise MaqeeError(f"{folder / _INDEX_FILE}: key 'weight_map' is missing.")
    state: dict[str, Tensor] = {}
    for shard in sorted({str(shard) for shard in index.values()}):
        if Path(shard).name != shard or not os.path.isfile(folder / shard):
            raise MaqeeError(f"{folder / _INDEX_FILE}: shard {shard!r} is not in the folder.")
        state |= read_tensors(folder / shard)
    return state


def _read_torch(path: Path) -> dict[str, Tensor]:
    """A pickled state dict, read with weights_only so that it cannot run code."""
    if not path.is_file():
        raise MaqeeError(f"{path} does not exist: give the path of a checkpoint.")
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        raise MaqeeError(f"{path} is not a readable checkpoint of plain tensors ({_reason(error)}).") from error
    for key in _NESTED_UNDER:
        if isinstance(value, dict) and isinstance(value.get(key), dict):
            value = value[key]
    if not isinstance(value, dict):
        raise MaqeeError(f"{path} holds a {type(value).__name__}, not a state dict.")
    for name, tensor in value.items():
        if not isinstance(name, str):
            raise MaqeeError(f"{path}: key {name!r} is no text, so this is not a state dict.")
        if not isinstance(tensor, Tensor):
            raise MaqeeError(f"{path}: key {name!r} is a {type(tensor).__name__}, not a tensor.")
    return value
