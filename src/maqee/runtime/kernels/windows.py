"""Where the tokens of Swin's windows lie, so that attention finds them there: nothing is rolled, cut up or put back."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.models.swin import SwinBlock, to_windows


class Windows(NamedTuple):
    """The windows of an image, and what is added to their scores.

    Attributes:
        places: (windows, tokens) which token of the image stands at each place of each window, int32.
        bias: (windows, heads, tokens, tokens), or (1, ...) where all windows have the same, in octaves.
    """

    places: Tensor
    bias: Tensor

    @classmethod
    def of(cls, block: SwinBlock) -> Windows | None:
        """None where the picture has to be filled up to whole windows."""
        if block.padded != block.grid:
            return None
        bias = block.attn.position_bias().detach().float()
        picture = torch.arange(math.prod(block.grid), device=bias.device).view(1, *block.grid, 1)
        if block.shift:
            picture = picture.roll((-block.shift, -block.shift), dims=(1, 2))
        if block.mask is not None:
            bias = bias + block.mask
        places = to_windows(picture, block.window).squeeze(-1).to(torch.int32)
        return cls(places.contiguous(), (bias * math.log2(math.e)).contiguous())

    @property
    def number(self) -> int:
        """How many an image has."""
        return len(self.places)

    @property
    def tokens(self) -> int:
        """Of one window."""
        return self.places.shape[1]
