"""Products of codes with themselves, exactly.

Codes are whole numbers of at most eight bits, so their sums of products are whole numbers too and do not depend on
the processor, the number of threads or the order of additions. Processors with instructions for products of bytes
add them up several times as fast as floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

INT_ROWS = 1 << 16  # 2^16 products of at most 2^14 fit into 32 bits
FLOAT_ROWS = 1 << 10  # 2^10 of them are exact in single precision


def code_gram(codes: Tensor) -> Tensor:
    """C^T C for codes C (rows, n) from -128 to 127, in double precision and exact."""
    if codes.device.type == "cpu" and codes.shape[1] > 1 and has_byte_products():  # torch misreads a single column
        return _sum_of_parts(codes.to(torch.int8), INT_ROWS, lambda part: torch._int_mm(part.t().contiguous(), part))
    return _sum_of_parts(codes.float(), FLOAT_ROWS, lambda part: part.t() @ part)


def has_byte_products() -> bool:
    """Whether the processor multiplies bytes without intermediate sums of 16 bits, which could overflow."""
    ask = getattr(torch.cpu, "_is_vnni_supported", None)
    return ask is not None and bool(ask()) and torch.backends.mkldnn.is_available()


def _sum_of_parts(codes: Tensor, rows: int, product: Callable[[Tensor], Tensor]) -> Tensor:
    total = torch.zeros(codes.shape[1], codes.shape[1], dtype=torch.float64, device=codes.device)
    for part in codes.split(rows):
        total += product(part)
    return total
