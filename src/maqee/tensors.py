"""Torch tensors in safetensors files, written atomically and read with errors that name the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maqee.disk import cannot_write
from maqee.errors import MaqeeError
from maqee.io import write_atomically


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically. Names are sorted by the format, so equal tensors give equal bytes."""
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        write_atomically(path, lambda temporary: save_file(ready, temporary, metadata=dict(metadata or {}) or None))
    except SafetensorError as error:  # what its own code makes of a full disk
        raise cannot_write(path, str(error)) from error


def read_tensors(path: Path, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """Read every tensor of a safetensors file; a truncated or foreign file is the user's error, named."""
    return read_tensors_and_metadata(path, device)[0]


def read_tensors_and_metadata(
    path: Path, device: str | torch.device = "cpu"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same, with the strings that were written beside the tensors."""
    if not os.path.isfile(path):
        raise MaqeeError(f"{path} does not exist: give the path of a safetensors file.")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return tensors, file.metadata() or {}
    except (SafetensorError, ValueError, OSError) as error:
        raise MaqeeError(f"{path} is not a readable safetensors file ({error}): download or write it again.") from error
