"""A network whose quantized parts run on kernels, as far as there are kernels for them.

The network itself stays as it is: what is changed is a copy that shares everything else with it.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.lgvit import LgvitHead
from maqee.exits.segment import Kept, Segment
from maqee.exits.vit_ee import MlpHead
from maqee.models import Backbone
from maqee.models.detection import DetectionReadout
from maqee.models.layers import Readout
from maqee.models.vit import ViT
from maqee.runtime.graphs import plain_segments
from maqee.runtime.kernels.branches import InFloat
from maqee.runtime.kernels.lgvit_heads import PooledHead
from maqee.runtime.kernels.readouts import POOLED, PooledReadout
from maqee.runtime.kernels.segformer_head import KernelSegformerHead
from maqee.runtime.kernels.swapper import Line, Swapper, with_children

NORM_FIRST = (LgvitHead, MlpHead)  # heads that read tokens, or some of them, through their norm alone
# Heads that read tokens in whatever they travel in.
ANY_TOKENS = (*NORM_FIRST, PooledHead, PooledReadout, KernelSegformerHead)
OLDEST = (8, 0)  # compute capability with int8 products of the size that kernels are cut into


class KernelSegment(Segment):
    """A segment whose network runs on kernels.

    Attributes:
        lines: how its network is computed, the same for all segments but for the heads.
        ending: norm and classifier behind the last block, where they have kernels.
    """

    lines: tuple[Line, ...] = ()
    ending: nn.Module | None = None

    def predict(self, x: Tensor, kept: Kept) -> Tensor:
        """The head alone, in float32, whatever tokens travel in."""
        if self.head is None and self.ending is not None:
            logits: Tensor = self.ending(x)
            return logits
        if self.head is None:
            readout = self.backbone.head
            assert isinstance(readout, Readout | DetectionReadout)
            return self.backbone.finish(readout.reads(x).float())
        tokens = [*(kept[block] for block in self.head.reads), x]
        return self.head(*(tokens if isinstance(self.head, ANY_TOKENS) else (part.float() for part in tokens)))


def use_kernels(model: EarlyExitModel, half_tokens: bool = False) -> None:
    """Let `model.run` use kernels, in place. They are prepared from the widths in use and the device it is on.

    Args:
        model: the network.
        half_tokens: let tokens travel between kernels in float16; what adds to them does so in float32.
    """
    if half_tokens and not isinstance(model.backbone, ViT):
        raise MaqeeError("half_tokens: tokens in float16 are for plain ViTs, which this model is not: leave it out.")
    swapper = Swapper(half_tokens)
    backbone = swapper.swap(model.backbone, "backbone")
    assert isinstance(backbone, Backbone)
    common = tuple(swapper.lines)
    segments: list[KernelSegment] = []
    for index, old in enumerate(model.segments):
        assert isinstance(old, Segment)
        swapper = Swapper()
        head = swapper.swap(model.head(index), f"heads.{index}") if index < len(model.heads) else None
        if half_tokens and isinstance(head, NORM_FIRST):
            head = with_children(head, {"norm": InFloat(head.norm)})
        segment = KernelSegment(backbone, old.first, old.last, old.read, head, old.confidence)  # type: ignore[arg-type]
        segment.lines, segment.ending = (*common, *swapper.lines), _ending(backbone) if head is None else None
        segments.append(segment)
    model.segments = list(segments)


def check_device(device: torch.device) -> None:
    """Complain about a device that the kernels do not run on; Triton's interpreter, which is slow, takes the CPU."""
    if device.type == "cpu" and triton.knobs.runtime.interpret:
        return
    if device.type != "cuda":
        raise MaqeeError(f"The engine triton runs on a GPU, not on {device}: give the device cuda, or use reference.")
    if torch.cuda.get_device_capability(device) < OLDEST:
        name = torch.cuda.get_device_name(device)
        raise MaqeeError(f"The engine triton needs a GPU of compute capability 8.0, which {name} is not: use torch.")


def describe(model: EarlyExitModel) -> list[Line]:
    """How every quantized part of a model that uses kernels is computed."""
    found = (segment.lines for segment in plain_segments(model) if isinstance(segment, KernelSegment))
    return list(dict.fromkeys(line for lines in found for line in lines))


def _ending(backbone: Backbone) -> nn.Module | None:
    """Norm and classifier in one pass over the tokens, where the classifier looks at all of them."""
    readout, norm = backbone.head, backbone.norm
    if not isinstance(readout, Readout) or readout.kind not in POOLED or not isinstance(norm, nn.LayerNorm):
        return None
    return PooledReadout(norm, readout, isinstance(backbone, ViT) and backbone.config.pooled_norm)
