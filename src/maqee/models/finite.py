"""Weights that are no numbers: they load, and then every answer is NaN."""

from __future__ import annotations

import torch
from torch import Tensor

NOT_FINITE = "holds NaN or infinite values"  # continues "key ..." in errors


def is_finite(tensor: Tensor) -> bool:
    """Whether every value is a number in float32; on the meta device there are no values, so that none is wrong."""
    if tensor.is_meta or not tensor.is_floating_point() or not tensor.numel():
        return True
    if tensor.element_size() == 1:  # eight-bit floats can be stored, not compared
        tensor = tensor.float()
    least, largest = torch.aminmax(tensor)  # NaN comes through, and nothing of the tensor's size is made
    return bool(least.float().isfinite() & largest.float().isfinite())
