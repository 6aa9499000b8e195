"""Learning rates in proportion to weights.

Adam moves every weight by about the learning rate, however large it is. Weights of a ViT trained from scratch are alike
in size, those of DINOv2 with its layer scales folded in are not: from block to block they differ thirtyfold. A rate
that suits the large ones moves the small ones by a tenth of their size at every step, and undoes what they know.
"""

from __future__ import annotations

import math

import torch
from torch import nn

USUAL_SIZE = 0.0625  # root mean square of the matrices of the ViTs that the usual rate was found with


@torch.no_grad()
def size_factors(model: nn.Module) -> dict[str, float]:
    """By name, what each parameter's learning rate is multiplied by: its module's size beside the usual, at most 1.

    A module's size is that of its weights; its bias goes with them. Factors are powers of two, so that there are few
    different ones. What is all zeros has no size yet, and learns at the usual rate.
    """
    factors: dict[str, float] = {}
    for place, module in model.named_modules():
        own: dict[str, nn.Parameter] = dict(module.named_parameters(recurse=False))
        for name, parameter in own.items():
            factors[f"{place}.{name}" if place else name] = size_factor(own.get("weight", parameter))
    return factors


def size_factor(weights: torch.Tensor) -> float:
    """The factor for weights of this size.

    Example:
        >>> [size_factor(torch.full((2, 2), size)) for size in (1.0, 0.03, 0.004, 0.0)]
        [1.0, 0.5, 0.0625, 1.0]
    """
    size = float(weights.float().square().mean().sqrt())
    return 2.0 ** min(round(math.log2(size / USUAL_SIZE)), 0) if size else 1.0
