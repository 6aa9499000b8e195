"""Getting tensors and configuration values out of files, folders, the Hub and live modules."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.io import read_json, read_tensors

_WEIGHT_FILES = ("model.safetensors", "pytorch_model.safetensors", "pytorch_model.bin")
_INDEX_FILE = "model.safetensors.index.json"
_NESTED_UNDER = ("state_dict", "model", "model_state_dict", "teacher")


@dataclass(frozen=True)
class Checkpoint:
    """Tensors under their own names, the values of the config files beside them, and what to call it in errors."""

    source: str
    state: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    preprocessor: dict[str, Any] = field(default_factory=dict)


def read_module(module: nn.Module) -> Checkpoint:
    """A live module of transformers or timm, through its state dict; neither library is imported."""
    config = getattr(module, "config", None)
    values: dict[str, Any] = dict(config.to_dict()) if config is not None and hasattr(config, "to_dict") else {}
    if isinstance(pretrained := getattr(module, "pretrained_cfg", None), dict):
        values["pretrained_cfg"] = pretrained
    for child in module.modules():
        if isinstance(heads := getattr(child, "num_heads", None), int):
            values.setdefault("num_heads", heads)
        if isinstance(child, nn.LayerNorm):
            values.setdefault("layer_norm_eps", child.eps)
    state = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    return Checkpoint(type(module).__name__, state, values)


def read_file(path: Path) -> Checkpoint:
    """A single .safetensors, .pth, .pt or .bin file."""
    if path.suffix == ".safetensors":
        return Checkpoint(str(path), read_tensors(path))
    if path.suffix in (".pth", ".pt", ".bin"):
        return Checkpoint(str(path), _read_torch(path))
    raise MaqeeError(f"{path} is neither a .safetensors nor a .pth/.pt/.bin file: convert it first.")


def read_folder(folder: Path) -> Checkpoint:
    """A folder with config.json and weights, as transformers, timm's Hub copies and maqee write it."""
    if not (folder / "config.json").is_file():
        raise MaqeeError(f"{folder} has no config.json: give the folder that save_pretrained wrote, or a weights file.")
    config = read_json(folder / "config.json")
    preprocessor = folder / "preprocessor_config.json"
    values = read_json(preprocessor) if preprocessor.is_file() else {}
    if (folder / _INDEX_FILE).is_file():
        return Checkpoint(str(folder / _INDEX_FILE), _read_shards(folder), config, values)
    for name in _WEIGHT_FILES:
        if (folder / name).is_file():
            read = read_file(folder / name)
            return Checkpoint(read.source, read.state, config, values)
    raise MaqeeError(f"{folder} holds no weights: expected one of {', '.join((*_WEIGHT_FILES, _INDEX_FILE))}.")


def download(name: str) -> Path:
    """Fetch a Hub repository's config and weights into the local cache and return the folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [
        "config.json",
        "preprocessor_config.json",
        *_WEIGHT_FILES[:2],
        "model*.safetensors",
        _INDEX_FILE,
    ]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MaqeeError(
            f"{name!r} is no local file or folder and could not be fetched from the Hub ({reason})."
        ) from error


def _read_shards(folder: Path) -> dict[str, Tensor]:
    index = read_json(folder / _INDEX_FILE).get("weight_map")
    if not isinstance(index, dict):
        raise MaqeeError(f"{folder / _INDEX_FILE}: key 'weight_map' is missing.")
    state: dict[str, Tensor] = {}
    for shard in sorted(set(index.values())):
        if Path(shard).name != shard:
            raise MaqeeError(f"{folder / _INDEX_FILE}: shard {shard!r} lies outside the folder.")
        state |= read_tensors(folder / shard)
    return state


def _read_torch(path: Path) -> dict[str, Tensor]:
    """A pickled state dict, read with weights_only so that it cannot run code."""
    if not path.is_file():
        raise MaqeeError(f"{path} does not exist: give the path of a checkpoint.")
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, OSError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise MaqeeError(f"{path} is not a readable checkpoint of plain tensors ({reason}).") from error
    for key in _NESTED_UNDER:
        if isinstance(value, dict) and isinstance(value.get(key), dict):
            value = value[key]
    if not isinstance(value, dict):
        raise MaqeeError(f"{path} holds a {type(value).__name__}, not a state dict.")
    for name, tensor in value.items():
        if not isinstance(tensor, Tensor):
            raise MaqeeError(f"{path}: key {name!r} is a {type(tensor).__name__}, not a tensor.")
    return value
