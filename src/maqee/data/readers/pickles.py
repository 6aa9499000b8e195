"""Reading the pickles of the CIFAR data sets without trusting them."""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maqee.errors import MaqeeError


class _Kind:
    """Stands in for numpy.dtype: remembers what the elements are."""

    def __init__(self, code: object, *_: object) -> None:
        self.is_byte = code in ("u1", b"u1")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like say nothing about bytes."""


class _Pixels:
    """Stands in for numpy.ndarray: an array of bytes and nothing else.

    numpy's own arrays believe what a pickle says about their memory, so that a damaged file can crash the process.
    """

    array: NDArray[np.uint8]

    def __setstate__(self, state: tuple[object, tuple[int, ...], _Kind, bool, bytes]) -> None:
        _, shape, kind, by_column, data = state
        if not isinstance(kind, _Kind) or not kind.is_byte:
            raise pickle.UnpicklingError("its array does not hold bytes")
        self.array = np.frombuffer(data, dtype=np.uint8).reshape(shape, order="F" if by_column else "C")


def _reconstruct(*_: object) -> _Pixels:
    return _Pixels()


def _encode(text: str, _: str) -> bytes:
    return text.encode("latin-1")  # how Python 3 writes bytes for Python 2


class _BytesOnly(pickle.Unpickler):
    """An unpickler that can build arrays of bytes and plain values, so that a file cannot run code."""

    _KNOWN: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _Pixels,
        ("numpy", "dtype"): _Kind,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self._KNOWN[module, name]


def unpickle(data: bytes, source: str) -> dict[str, Any]:
    """The dictionary in a CIFAR pickle; `source` names it in errors."""
    try:
        values = _BytesOnly(io.BytesIO(data), encoding="bytes").load()
        return {_text(key): value.array if isinstance(value, _Pixels) else value for key, value in values.items()}
    except Exception as error:  # damaged pickles raise almost anything, and nothing but the file can be at fault
        reason = " ".join(str(error).split())
        raise MaqeeError(f"{source} is not a CIFAR-100 batch ({reason}): download it again.") from error


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
