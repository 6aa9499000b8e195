"""What single changes of widths do to a network: every answer and every block's output, image by image.

Tokens in front of every block are kept, so that a change is run from its own block on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.apq.units import ATTENTION, Unit
from maqee.compression.model_measure import noise_ratio, range_deviation
from maqee.compression.sensitivity import Seen, first_block, states_from, touched_exits
from maqee.evaluation.record import Batch
from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel
from maqee.widths import LAYERS, BitPair, BitSettings

Floats = NDArray[np.float64]
Figure = Callable[[Tensor, Tensor, Tensor], Tensor]  # output, full-precision output and target to a number an image


class Change(NamedTuple):
    """Another pair of widths for one unit."""

    unit: Unit
    pair: BitPair


class Answers(NamedTuple):
    """What is seen at the base, and by how much every change moves it.

    Attributes:
        base: (images, exits + 1, figures).
        moved: (changes, images, exits + 1, figures).
        base_blocks: (images, blocks, 2) deviation of the range and relative noise of every block's output.
        moved_blocks: (changes, images, 2) the same of the changed block, less what it is at the base.
    """

    base: Floats
    moved: Floats
    base_blocks: Floats
    moved_blocks: Floats


def single_moves(depth: int, weight: int, activation: int) -> list[Change]:
    """One bit more or less in one width of every layer, from uniform widths."""
    moves = []
    for block in range(1, depth + 1):
        for layer in LAYERS:
            for step in (-1, 1):
                unit, other = Unit("layer", block, layer), activation + step
                if layer == ATTENTION:
                    moves.append(Change(unit, (other, other)))
                else:
                    moves += [Change(unit, (weight + step, activation)), Change(unit, (weight, other))]
    return moves


@torch.inference_mode()
def answers_under(
    reference: EarlyExitModel,
    quantized: QuantizedModel,
    batches: Sequence[Batch],
    base: BitSettings,
    changes: Sequence[Change],
    figures: Sequence[Figure],
) -> Answers:
    """Figures at every exit, and the blocks' outputs, at `base` and under every change of it."""
    model = quantized.model
    assert isinstance(model, EarlyExitModel)
    parts = [_of_batch(reference, quantized, model, batch, base, changes, figures) for batch in batches]
    quantized.set_widths(base)
    axes = (0, 1, 0, 1)  # where the images are
    return Answers(*(np.concatenate(values, axis) for values, axis in zip(zip(*parts, strict=True), axes, strict=True)))


def _of_batch(
    reference: EarlyExitModel,
    quantized: QuantizedModel,
    model: EarlyExitModel,
    batch: Batch,
    base: BitSettings,
    changes: Sequence[Change],
    figures: Sequence[Figure],
) -> Answers:
    images, targets = batch
    quantized.set_widths(base)
    wanted = reference.forward_all(images, blocks=True)
    tokens = model.backbone.embedding(images)
    states = [tokens, *(later for _, later in model.backbone.walk(tokens))]
    seen = Seen(states, wanted.outputs, images)

    def at_exit(states: Sequence[Tensor], index: int) -> Tensor:
        output = model.predict(index, states[1 : model.exit_blocks[index] + 1])
        return torch.stack([figure(output, wanted.outputs[index], targets) for figure in figures], dim=1).double()

    def at_block(output: Tensor, block: int) -> Tensor:
        pair = wanted.blocks[block - 1], output
        return torch.stack([range_deviation(*pair), noise_ratio(*pair)], dim=1).double()

    first = torch.stack([at_exit(states, index) for index in range(len(model.exit_blocks))], dim=1)
    blocks = torch.stack([at_block(states[block], block) for block in range(1, model.backbone.depth + 1)], dim=1)
    moved, moved_blocks = [], []
    for unit, pair in changes:
        quantized.set_widths(unit.with_pair(base, pair))
        now = states_from(model, seen, first_block(unit, model.backbone.depth))
        change = torch.zeros_like(first)
        for index in touched_exits(unit, model.exit_blocks):
            change[:, index] = at_exit(now, index) - first[:, index]
        moved.append(change)
        moved_blocks.append(at_block(now[unit.number], unit.number) - blocks[:, unit.number - 1])
    return Answers(*(_array(value) for value in (first, torch.stack(moved), blocks, torch.stack(moved_blocks))))


def _array(values: Tensor) -> Floats:
    found: Floats = values.cpu().numpy()
    return found
