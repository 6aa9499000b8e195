"""Two ways to add up products of codes: float32 ("simulated") and int32 ("executed").

Codes are whole numbers, and float32 adds whole numbers without any rounding up to 2^24, in whatever order. So the two
ways give the same sums, to the bit, except where a sum of wide codes (8 by 8 bits, thousands of terms) grows larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.processor import multiplies_bytes

INT32_LARGEST = 2**31 - 1
SHORT = 2**11  # whole numbers up to here are exact in TF32, the float32 of a GPU's tensor cores
BYTE = 2**7 - 1
FEW = 2**18  # products in a matrix product that floats add up as fast as bytes


class Sums(NamedTuple):
    """How products of codes (whole numbers in a float tensor) are added up.

    Attributes:
        word: what figures are called that were measured with it.
        matmul: (..., n, k) and (..., k, m) to (..., n, m); the name is for errors.
        convolve: (batch, in, rows, columns) and a convolution's (out, in / groups * kernel) to (batch, rows,
            columns, out).
    """

    word: str
    matmul: Callable[[Tensor, Tensor, str], Tensor]
    convolve: Callable[[Tensor, Tensor, nn.Conv2d, str], Tensor]


def reach(zero: Tensor, top: int) -> float:
    """The largest of the codes 0 .. top, less their zero points; infinite if one is no whole number.

    A GPU is waited for.
    """
    if not bool((zero == zero.round()).all()):  # releases leave fractions there
        return math.inf
    return float(torch.maximum(zero.abs(), (top - zero).abs()).max())


def tensor_cores(allowed: bool) -> AbstractContextManager[None]:
    """Let products of short whole numbers run on a GPU's tensor cores, which are faster and add up just as exactly."""
    return _in_tf32() if allowed else nullcontext()


@contextmanager
def _in_tf32() -> Iterator[None]:
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "tf32"
    try:
        yield
    finally:
        settings.fp32_precision = before


def check_accumulator(left: int, right: int, length: int, name: str) -> int:
    """The largest sum of `length` products of codes up to `left` and `right`; an error if int32 cannot hold it."""
    bound = left * right * length
    if bound > INT32_LARGEST:
        raise MaqeeError(
            f"{name}: {length} products of codes up to {left} and {right} can reach {bound}, more than int32 holds: "
            "use fewer bits, or fit on data whose range includes zero."
        )
    return bound


def _float_matmul(left: Tensor, right: Tensor, name: str) -> Tensor:
    return left @ right


def _byte_matmul(left: Tensor, right: Tensor, name: str) -> Tensor:
    """Bytes with int32 sums, which the steps turn into floats; right has two dimensions."""
    rows = left.shape[:-1].numel()
    if rows * right.numel() < FEW or not multiplies_bytes():
        return left @ right
    sums = torch._int_mm(left.to(torch.int8).reshape(rows, -1), right.to(torch.int8))
    return sums.view(*left.shape[:-1], -1)


def _float_convolve(codes: Tensor, weights: Tensor, conv: nn.Conv2d, name: str) -> Tensor:
    return conv._conv_forward(codes, weights.view_as(conv.weight), None).permute(0, 2, 3, 1)


def _int_matmul(left: Tensor, right: Tensor, name: str) -> Tensor:
    """A plain product with int32 sums; wider sums cannot occur."""
    one, other = _whole(left, name), _whole(right, name)
    if one.numel() and other.numel():
        check_accumulator(int(one.abs().max()), int(other.abs().max()), one.shape[-1], name)
    sums = one @ other
    assert sums.dtype == torch.int32
    return sums.to(left.dtype)


def _int_convolve(codes: Tensor, weights: Tensor, conv: nn.Conv2d, name: str) -> Tensor:
    assert not isinstance(conv.padding, str)
    down, right = conv.padding
    padded = F.pad(codes, (right, right, down, down))  # the integer 0 is the number 0: zero points are taken off
    windows = padded.unfold(2, conv.kernel_size[0], conv.stride[0]).unfold(3, conv.kernel_size[1], conv.stride[1])
    batch, _, rows, columns, *_ = windows.shape  # (batch, in, rows, columns, kernel rows, kernel columns)
    grouped = windows.unflatten(1, (conv.groups, -1)).permute(0, 1, 3, 4, 2, 5, 6)
    patches = grouped.reshape(batch, conv.groups, rows * columns, -1)
    kernels = weights.unflatten(0, (conv.groups, -1)).transpose(1, 2)  # (groups, in / groups * kernel, out / groups)
    sums = _int_matmul(patches, kernels, name)  # (batch, groups, places, out / groups)
    return sums.transpose(1, 2).flatten(2).unflatten(1, (rows, columns))


def _whole(codes: Tensor, name: str) -> Tensor:
    """Codes as int32."""
    if codes.device.type != "cpu":
        raise MaqeeError(f"{name}: sums in int32 are made on the CPU only: move the model there with .model.cpu().")
    if not bool((codes == codes.round()).all()) or float(codes.abs().max()) > INT32_LARGEST // 2:
        raise MaqeeError(f"{name} has a zero point that is no small integer: quantize with integer_zeros=True.")
    return codes.to(torch.int32)


SIMULATED = Sums("simulated", _float_matmul, _float_convolve)
IN_BYTES = SIMULATED._replace(matmul=_byte_matmul)  # the same sums on a processor that is quick with bytes
EXECUTED = Sums("executed", _int_matmul, _int_convolve)
