"""LGViT's local heads as a list of kernel calls: codes from the first layer's input to the last one's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maqee.exits.lgvit import LgvitHead, LocalHead
from maqee.quant.coded import WeightState
from maqee.runtime.kernels.branches import expect_codes
from maqee.runtime.kernels.depthwise import Depthwise
from maqee.runtime.kernels.linear import Linear
from maqee.runtime.kernels.passing import Affine, Target
from maqee.runtime.kernels.rows import RowCoder
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights


class KernelLocalHead(LgvitHead):
    """The head with other layers in its middle; norm, pooling and classifier are the same.

    Args:
        head: the head.
        readout: its classifier, which may have kernels of its own.
        expand: its first layer.
        depthwise: weights of its convolution and their input's grid; None where the head has none.
        project: its last layer, with one group of columns.
    """

    def __init__(
        self,
        head: LocalHead,
        readout: nn.Module,
        expand: StoredWeights,
        depthwise: tuple[WeightState, StoredGrid] | None,
        project: StoredWeights,
    ) -> None:
        super(LgvitHead, self).__init__()
        self.shape, self.norm, self.tail_norm = head.shape, head.norm, head.tail_norm
        self.readout = readout  # type: ignore[assignment]
        self.code = RowCoder(expand)
        following = Target.input_of(project)
        self.depthwise: Depthwise | None = None
        if depthwise is not None:
            self.depthwise = Depthwise(*depthwise, head.shape.grid, Affine.of(head.depthwise_norm), following)
            following = Target.plain([depthwise[1]], expand.outputs)
        self.expand = Linear(expand, following, gelu=True, affine=Affine.of(head.expand_norm))
        self.project = Linear(Affine.of(head.project_norm).behind(project))

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes), from the features of every patch."""
        return self.with_features(tokens[-1])[0]

    def transform(self, patches: Tensor) -> Tensor:
        """(batch, n, dim) to the same shape."""
        patches = patches.contiguous()
        coded = expect_codes(self.expand(self.code(patches)))
        if self.depthwise is not None:
            coded = self.depthwise(coded)
        y = self.project(coded, patches.view(-1, patches.shape[-1]))
        assert isinstance(y, torch.Tensor)
        return y.view_as(patches)
