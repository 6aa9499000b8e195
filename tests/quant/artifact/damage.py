"""Ways to spoil a saved quantized model, so that what is spoiled is reached: the checksum is made to fit again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def write_folder(folder: Path, config: dict[str, Any], weights: bytes) -> None:
    """Both files, belonging together."""
    (folder / WEIGHTS).write_bytes(weights)
    (folder / CONFIG).write_text(json.dumps({**config, "sha256": hashlib.sha256(weights).hexdigest()}))


def change_tensors(source: Path, target: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A copy with other tensors."""
    tensors = safetensors.torch.load((source / WEIGHTS).read_bytes())
    change(tensors)
    write_folder(target, json.loads((source / CONFIG).read_text()), safetensors.torch.save(tensors))


def change_config(source: Path, target: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A copy with other values in the config."""
    config = json.loads((source / CONFIG).read_text())
    change(config)
    (target / WEIGHTS).write_bytes((source / WEIGHTS).read_bytes())
    (target / CONFIG).write_text(json.dumps(config))
