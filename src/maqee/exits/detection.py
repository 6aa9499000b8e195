"""Exit heads of a detector: the two heads of YOLOS on the detection tokens of an earlier block.

Both kinds start as copies of the final heads. Fresh heads on a trained detector hardly learn; copied ones begin with
the right idea of what a token means, since the tokens of neighbouring blocks differ little.
"""

from __future__ import annotations

from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits.heads import ExitHead, heads
from maqee.exits.vit_ee import copy_matching
from maqee.models import Backbone, TokenShape
from maqee.models.detection import DetectionReadout, init_readout
from maqee.models.layers import init_weights
from maqee.models.vit import Block


@heads.register("detection")
class DetectionHead(ExitHead):
    """Norm, class head and box head on the detection tokens, as at the end of the backbone."""

    reads_detection_tokens = True

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__()
        if not shape.detection_tokens:
            raise MaqeeError("A detection head needs detection tokens: load the model with detection_tokens, e.g. 100.")
        if not num_classes:
            raise MaqeeError("A detection head needs classes: load the model with num_classes.")
        self.shape = shape
        self.norm = nn.LayerNorm(shape.dim, eps=1e-6)
        self.readout = DetectionReadout(shape.dim, num_classes, shape.detection_tokens, shape.readout == "anchored")
        init_readout(self.readout, shape.grid)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to (batch, queries, classes + 1 + 4)."""
        return self.readout(self.norm(tokens[-1][:, -self.shape.detection_tokens :]))

    def macs(self) -> int:
        """Both heads."""
        return self.readout.macs()

    def start_from(self, backbone: Backbone, position: int) -> None:
        """The final norm and heads."""
        copy_matching(self.norm, backbone.norm)
        copy_matching(self.readout, backbone.head)


@heads.register("detection-encoder")
class DetectionEncoderHead(DetectionHead):
    """One more encoder layer over all tokens first, started from the next block."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__(shape, num_classes)
        self.block = Block(shape.dim, shape.heads, shape.mlp_dim)
        init_weights(self.block)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to (batch, queries, classes + 1 + 4)."""
        return super().forward(self.block(tokens[-1]))

    def macs(self) -> int:
        """The layer and both heads."""
        return sum(self.block.macs(self.shape.tokens).values()) + super().macs()

    def start_from(self, backbone: Backbone, position: int) -> None:
        """The next block, the final norm and heads. Positions between blocks, which the head does not add, stay out."""
        super().start_from(backbone, position)
        copy_matching(self.block, backbone.blocks[min(position, backbone.depth - 1)])
