"""Codes of 1 to 8 bits side by side without gaps.

Bit k of the stream is bit k mod 8 of byte k // 8, and a code's lowest bit comes first. Eight codes fill exactly as many
bytes as a code has bits, so eight at a time pass through one 64-bit number.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from maqee.errors import MaqeeError

_WORD = np.dtype("<u8")  # little-endian on every machine: the lowest bits are the first bytes


def packed_length(count: int, bits: int) -> int:
    """Bytes that `count` codes take."""
    return -(-count * _check(bits) // 8)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes 0 .. 2^bits - 1 (uint8, any shape, in memory order) to a row of bytes.

    Example:
        >>> pack(torch.tensor([1, 2, 3], dtype=torch.uint8), 4).tolist()
        [33, 3]
    """
    if codes.dtype != torch.uint8:
        raise MaqeeError(f"Codes to pack must be uint8, not {codes.dtype}: round and convert them first.")
    flat = codes.detach().cpu().contiguous().flatten().numpy()
    length = packed_length(flat.size, bits)
    if flat.size and int(flat.max()) >= 2**bits:
        raise MaqeeError(f"Code {int(flat.max())} does not fit into {bits} bits: the largest is {2**bits - 1}.")
    eights = np.zeros((-(-flat.size // 8), 8), dtype=_WORD)
    eights.reshape(-1)[: flat.size] = flat
    words = np.bitwise_or.reduce(eights << _shifts(bits), axis=1)  # (n / 8,)
    packed = words.astype(_WORD).view(np.uint8).reshape(-1, 8)[:, :bits]  # the bytes above are empty
    return torch.from_numpy(packed.reshape(-1)[:length].copy())


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The reverse of `pack`: `count` codes as a row of uint8."""
    length = packed_length(count, bits)
    if packed.dtype != torch.uint8 or tuple(packed.shape) != (length,):
        raise MaqeeError(
            f"{count} codes of {bits} bits are a row of {length} bytes, not {packed.dtype} of shape "
            f"{tuple(packed.shape)}: restore the packed codes."
        )
    groups = -(-count // 8)
    padded = np.zeros(groups * bits, dtype=np.uint8)
    padded[:length] = packed.detach().cpu().numpy()
    words = np.zeros((groups, 8), dtype=np.uint8)
    words[:, :bits] = padded.reshape(groups, bits)
    codes = (words.view(_WORD) >> _shifts(bits)) & _WORD.type(2**bits - 1)  # (n / 8, 8)
    flat = codes.astype(np.uint8).reshape(-1)
    if flat[count:].any():
        raise MaqeeError(f"The last byte holds more than {count} codes of {bits} bits: restore the packed codes.")
    return torch.from_numpy(flat[:count].copy())


def _shifts(bits: int) -> np.ndarray:
    """Where each of eight codes begins in a 64-bit number."""
    return np.arange(8, dtype=_WORD) * _WORD.type(bits)


def _check(bits: int) -> int:
    if not isinstance(bits, int) or not 1 <= bits <= 8:
        raise MaqeeError(f"Packed codes have 1 to 8 bits, not {bits!r}.")
    return bits
