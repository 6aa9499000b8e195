"""A layer whose outputs are averaged over the tokens of an image."""

from __future__ import annotations

from torch import Tensor

from maqee.runtime.kernels.stored import StoredWeights


class PooledLinear:
    """The mean of a layer's outputs from the mean of its inputs, once these are codes.

    Codes are rounded token by token; what comes behind them is affine, and a sum of codes is exact. So one row an image
    is multiplied instead of one a token, and outputs of tokens are neither written nor read.

    Args:
        weights: the layer, with one group of columns.
    """

    def __init__(self, weights: StoredWeights) -> None:
        assert weights.groups == 1
        numbers = weights.codes[: weights.outputs, : weights.inputs].float()  # (outputs, inputs)
        if weights.rests is not None:
            numbers = numbers - weights.rests[0, : weights.outputs, None]
        self.matrix = (numbers * weights.scale[0, : weights.outputs, None]).t().contiguous()  # (inputs, outputs)
        self.bias = weights.bias[: weights.outputs]
        self.grid = weights.grid

    def add_to(self, pooled: Tensor, mean: Tensor) -> None:
        """Add the layer without its bias, of the mean of codes less their zero point (rows, inputs), in place."""
        pooled.addmm_(mean, self.matrix)
