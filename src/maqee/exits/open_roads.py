"""What a model runs under a policy: the roads between the exits that are open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.exits.segment import RunSegment
from maqee.policy import Policy


class Decision(NamedTuple):
    """What came out under a policy, in the order the samples went in.

    Attributes:
        output: the prediction of the exit each sample took.
        exit: index of that exit; the number of exits means full depth.
        confidence: how sure the model was there.
    """

    output: Tensor
    exit: Tensor
    confidence: Tensor


class Road(NamedTuple):
    """A segment with the exit that it leads to.

    Attributes:
        exit: index of the exit among all exits, open or not; the number of exits means full depth.
        segment: what runs it.
    """

    exit: int
    segment: RunSegment


class OpenRoads:
    """Roads that lead over closed exits, made once for each choice of open ones: graphs and sessions are kept."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], tuple[list[RunSegment], list[Road]]] = {}  # with what they were made of

    def between(
        self, segments: list[RunSegment], ends: tuple[int, ...], blocks: Sequence[int], read: frozenset[int]
    ) -> list[Road]:
        """The roads from each open exit to the next; anew where the segments are no longer those of last time.

        Args:
            segments: from every exit to the next, closed or not.
            ends: the open exits, full depth last.
            blocks: the block after which each exit sits, full depth last.
            read: blocks whose tokens heads of open exits read.
        """
        made_of, roads = self._made.get(ends, ([], []))
        if made_of != segments:
            firsts = (1, *(blocks[index] + 1 for index in ends[:-1]))
            pairs = zip(ends, firsts, strict=True)
            roads = [Road(index, segments[index].over_closed(first, read)) for index, first in pairs]
            self._made[ends] = list(segments), roads
        return roads

    def __iter__(self) -> Iterator[RunSegment]:
        """All segments that were made."""
        return (road.segment for _, roads in self._made.values() for road in roads)


@torch.inference_mode()
def run_roads(roads: Sequence[Road], images: Tensor, policy: Policy) -> Decision:
    """Stop each sample at the first exit that is sure enough: `EarlyExitModel.run` on roads that are at hand."""
    x = images
    kept: dict[int, Tensor] = {}
    alive = torch.arange(images.shape[0], device=images.device)
    whole: Decision | None = None
    for index, segment in roads:
        x, new, output, confidence = segment(x, kept)
        kept |= new
        here = Decision(output, torch.full_like(alive, index), confidence)
        # Everyone still here writes its answer; those who go on overwrite it at a later exit.
        whole = here if whole is None else _write(whole, alive, here)
        if index == roads[-1].exit:
            break
        staying = (confidence < policy.thresholds[index]).nonzero().squeeze(1)
        if staying.numel() == 0:
            break
        if staying.numel() < alive.numel():
            x, alive = x[staying], alive[staying]
            kept = {block: tokens[staying] for block, tokens in kept.items()}
    assert whole is not None
    return whole


def _write(whole: Decision, where: Tensor, here: Decision) -> Decision:
    """Scatter the answers of the samples at `where` into the whole batch's."""
    for target, part in zip(whole, here, strict=True):
        target.index_copy_(0, where, part)
    return whole
