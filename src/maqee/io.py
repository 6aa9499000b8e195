"""Reading and writing files so that a crash leaves either the old file or the new one, never half of one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maqee.disk import cannot_write, explain_write_errors
from maqee.errors import MaqeeError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it into place in one step.

    A disk that does not take it is the user's error, named.
    """
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb") as file:  # the data must be on disk before the name points to it
                os.fsync(file.fileno())
            temporary.chmod(0o644)  # mkstemp makes files private; ordinary results are not
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_atomically(path, lambda temporary: _write_bytes(temporary, text.encode()))


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def to_json(value: Any) -> str:
    """Canonical JSON: equal values give equal bytes. NaN and infinity are refused, they are not JSON."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write canonical JSON atomically."""
    write_text(path, to_json(value))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; anything else is the user's error, named."""
    if not os.path.isfile(path):  # unlike Path.is_file, it does not mind names that no file can have
        raise MaqeeError(f"{path} does not exist: give the path of a JSON file.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise MaqeeError(f"{path} is not valid JSON ({error}): restore the file.") from error
    if not isinstance(value, dict):
        raise MaqeeError(f"{path} holds a {type(value).__name__}, not a JSON object: restore the file.")
    return value


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
