"""What an exit head is, and the registry of all kinds."""

from __future__ import annotations

from typing import ClassVar, Protocol

from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models import Backbone, TokenShape
from maqee.registry import Registry


class ExitHead(nn.Module):
    """Turns the tokens after a block into a prediction.

    A head may also read earlier blocks (a segmentation decoder does): it lists them in `reads`, and `forward` is called
    with their tokens first, the tokens of its own block last.

    Attributes:
        reads: 1-based numbers of those blocks, none later than the head's own (which is `TokenShape.block`).
        also_final: whether a model with such exits must end with such a head too, because its output is not the one
            of the backbone's classifier.
        reads_detection_tokens: whether it is made for a detector's tokens, and for no others.
    """

    reads: tuple[int, ...] = ()
    also_final: ClassVar[bool] = False
    reads_detection_tokens: ClassVar[bool] = False

    def forward(self, *tokens: Tensor) -> Tensor:
        """(batch, tokens, dim) of each block read, then of the own block, to the task's output."""
        raise NotImplementedError

    def macs(self) -> int:
        """Multiply-accumulates for one image."""
        raise NotImplementedError

    def start_from(self, backbone: Backbone, position: int) -> None:
        """Copy what can be copied from the backbone; position is the 1-based block the head follows."""


class HeadBuilder(Protocol):
    """Makes a head for tokens of a given shape."""

    def __call__(self, shape: TokenShape, num_classes: int) -> ExitHead:
        """Build it with fresh weights."""


heads: Registry[HeadBuilder] = Registry("exit head")


def build_head(kind: str, shape: TokenShape, num_classes: int) -> ExitHead:
    """A fresh head; a kind that does not read what the backbone has is the user's error."""
    head = heads[kind](shape, num_classes)
    if shape.detection_tokens and not head.reads_detection_tokens:
        raise MaqeeError(f"The model is a detector, {kind!r} heads are not: choose 'detection' or 'detection-encoder'.")
    return head


def class_and_patches(tokens: Tensor, prefix_tokens: int) -> tuple[Tensor, Tensor]:
    """The class token (batch, dim), or the mean token where there is none, and the patches (batch, n, dim)."""
    patches = tokens[:, prefix_tokens:]
    return (tokens[:, 0] if prefix_tokens else patches.mean(dim=1)), patches
