"""Reading and writing files so that a crash leaves either the old file or the new one, never half of one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maqee.disk import cannot_write, explain_write_errors
from maqee.errors import MaqeeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


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


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically. Names are sorted by the format, so equal arrays give equal bytes."""
    import numpy as np  # not above: the command line's help must not wait for it
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    ready = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        write_atomically(path, lambda temporary: save_file(ready, temporary, metadata=dict(metadata or {}) or None))
    except SafetensorError as error:  # what its own code makes of a full disk
        raise cannot_write(path, str(error)) from error


def read_arrays_and_metadata(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """All arrays of a safetensors file, and the strings that were written beside them.

    A truncated or foreign file is the user's error, named; so is one with numbers that numpy does not have, such as
    bfloat16.
    """
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise MaqeeError(f"{path} does not exist: give the path of a safetensors file.")
    try:
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            metadata = file.metadata() or {}
    except (SafetensorError, ValueError, TypeError, AttributeError, OSError) as error:
        raise MaqeeError(f"{path} is not a readable safetensors file ({error}): download or write it again.") from error
    for name, array in arrays.items():
        if array.dtype.isbuiltin != 1:  # other packages can teach numpy more kinds
            raise MaqeeError(
                f"{path} is not a readable safetensors file ({name} holds {array.dtype}): download or write it again."
            )
    return arrays, metadata
