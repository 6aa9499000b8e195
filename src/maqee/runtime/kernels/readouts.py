"""The end of a network, or of a head, whose classifier reads the mean of all patches: tokens are read once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maqee.exits.heads import ExitHead
from maqee.models.layers import Readout
from maqee.runtime.kernels.gathering import Gatherer
from maqee.runtime.kernels.passing import Affine
from maqee.runtime.kernels.token_rows import Picked, TokenReader

POOLED = ("mean", "class+mean")  # readouts that look at every patch


class PooledReadout(ExitHead):
    """Norm, mean and classifier, of tokens in whatever they travel in.

    Args:
        norm: of the tokens, or of their mean.
        readout: the classifier, one of those that look at every patch.
        pooled_norm: whether the norm comes after the mean.
    """

    def __init__(self, norm: nn.LayerNorm, readout: Readout, pooled_norm: bool = False) -> None:
        super().__init__()
        assert readout.kind in POOLED
        self.picked, self.linear = Picked(readout.prefix_tokens), readout.linear
        self.then: nn.Module = norm if pooled_norm else nn.Identity()
        pooled = Affine(norm.weight.detach(), norm.bias.detach())
        if pooled_norm:
            pooled = Affine(torch.ones_like(pooled.factor), torch.zeros_like(pooled.summand))
        first = None if pooled_norm else norm
        self.read = TokenReader(self.picked, first, None, adds_up=True)
        self.gather = Gatherer(first, int(readout.kind == "class+mean"), pooled, beside=True)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        x = tokens[-1]
        pooled = self.gather(x, self.read(x).totals, None, self.picked.among(x.shape[1])).tokens
        logits: Tensor = self.linear(self.then(pooled.flatten(1)))
        return logits
