"""SegFormer's decoder with its norms and first layers on kernels: the tokens of every block are read once."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from maqee.exits.heads import ExitHead
from maqee.exits.segformer import SegformerHead
from maqee.runtime.kernels.linear import Linear
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.token_rows import Picked, TokenReader


class PatchLinear(nn.Module):
    """A norm and a layer of the patches, of tokens in whatever they travel in.

    Args:
        picked: where the patches are.
        norm: in front of the layer.
        weights: the layer.
    """

    def __init__(self, picked: Picked, norm: nn.LayerNorm, weights: StoredWeights) -> None:
        super().__init__()
        self.read, self.multiply = TokenReader(picked, norm, weights, adds_up=False), Linear(weights)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, dim) to (batch, patches, outputs)."""
        coded = self.read(x).coded
        assert coded is not None
        y = self.multiply(coded)
        assert isinstance(y, Tensor)
        return y.view(len(x), -1, y.shape[1])


class KernelSegformerHead(ExitHead):
    """The decoder.

    Args:
        head: the decoder, whose other layers may have kernels of their own.
        layers: its first layers, shallowest first.
    """

    def __init__(self, head: SegformerHead, layers: Sequence[StoredWeights]) -> None:
        super().__init__()
        self.head, self.reads = head, head.reads
        picked = Picked.from_grid(head.shape)
        maps = []
        for norm, weights in zip(head.norms, layers, strict=True):
            assert isinstance(norm, nn.LayerNorm)
            maps.append(PatchLinear(picked, norm, weights))
        self.maps = nn.ModuleList(maps)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) of four blocks, shallowest first, to a picture of logits."""
        return self.head.join([part(x) for part, x in zip(self.maps, tokens, strict=True)])
