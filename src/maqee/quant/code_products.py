"""Products of codes with themselves, exactly.

Codes are whole numbers of at most eight bits, so their sums of products are whole numbers too and do not depend on
the processor, the number of threads or the order of additions. They are made in single precision, a few rows at a time:
products of bytes would be faster, but on some processors, and with some settings of the libraries, these overflow.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 1 << 10  # 2^10 products of at most 2^14 are exact in single precision


def code_gram(codes: Tensor) -> Tensor:
    """C^T C for codes C (rows, n) from -128 to 127, in double precision and exact."""
    total = torch.zeros(codes.shape[1], codes.shape[1], dtype=torch.float64, device=codes.device)
    for part in codes.float().split(ROWS):
        total += part.t() @ part
    return total
