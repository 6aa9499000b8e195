"""The projection of patches: a convolution whose windows do not overlap, computed as one matrix product."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def unfold_patches(images: Tensor, size: int) -> Tensor:
    """(batch, channels, height, width) to (batch, rows, columns, channels * size^2); sides are multiples of the size.

    The pixels of a patch stand in the order of a convolution's weights: channel by channel, row by row.
    """
    tiles = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (batch, channels, rows, size, columns, size)
    return tiles.permute(0, 2, 4, 1, 3, 5).flatten(3)


class PatchConv(nn.Conv2d):
    """A convolution with a stride as large as its kernel, and without padding.

    It has the weights, the names and the numbers of one, up to rounding. Convolution kernels of the libraries take ten
    times as long for it as its multiply-accumulates would on a GPU, where this is one copy and one matrix product.

    Args:
        channels: of the images.
        dim: width of the tokens.
        size: of a patch, in pixels.
    """

    def __init__(self, channels: int, dim: int, size: int) -> None:
        super().__init__(channels, dim, size, stride=size)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(batch, dim, rows, columns), as a view: the numbers of a token lie together, where a transformer wants them.

        Whatever applies other weights in a convolution's place, as quantized layers do, calls this method.
        """
        return F.linear(unfold_patches(input, self.kernel_size[0]), weight.flatten(1), bias).permute(0, 3, 1, 2)
