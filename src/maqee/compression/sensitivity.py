"""Errors that every width of every unit causes at the exits: the torch side of `maqee.apq.unit_errors`.

All else is at the most bits. The tokens in front of every block are kept from one pass, so that only the blocks from
the changed one on are run again, on a part of the images that is small enough for all of this to be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.apq.options import SearchOptions
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import ATTENTION, Space, Unit
from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel
from maqee.tasks import Task
from maqee.widths import BitPair, BitSettings

LEAST_IMAGES = 4
Error = Callable[[Tensor, Tensor], Tensor]  # output and the full-precision model's, to one number a sample


class Seen(NamedTuple):
    """What is kept of one batch.

    Attributes:
        states: tokens in front of the first block and after every block, all at the most bits.
        wanted: outputs of the full-precision model at every exit and at full depth.
        images: the batch itself.
    """

    states: list[Tensor]
    wanted: list[Tensor]
    images: Tensor


def relative_error(output: Tensor, wanted: Tensor) -> Tensor:
    """||o - f||^2 over the spread of f, ||f - mean f||^2: (batch, ...) to (batch,)."""
    error, own = (output - wanted).flatten(1), wanted.flatten(1)
    spread = (own - own.mean(dim=1, keepdim=True)).square().sum(dim=1).clamp(min=1e-12)
    return error.square().sum(dim=1) / spread


def error_of(task: Task, options: SearchOptions) -> Error:
    """The error that the options ask for."""
    if options.signal == "divergence":
        return lambda output, wanted: task.distillation(output, wanted, 1.0)
    return relative_error


def error_runs(space: Space, depth: int) -> float:
    """Passes over the blocks, in fractions, that measuring all widths on the same images takes; heads are little."""
    total = 0.0
    for unit, pairs in zip(space.units, space.pairs, strict=True):
        changes = len({pair[0] for pair in pairs}) + len({pair[1] for pair in pairs}) - 2
        if unit.layer == ATTENTION:
            changes = len(pairs) - 1
        total += changes * (depth + 1 - max(first_block(unit, depth), 1)) / depth
    return total


@torch.inference_mode()
def measure_unit_errors(
    reference: EarlyExitModel,
    quantized: QuantizedModel,
    images: Sequence[Tensor],
    base: BitSettings,
    space: Space,
    options: SearchOptions,
    task: Task,
) -> tuple[UnitErrors, ...]:
    """Errors of all units, each width measured with everything else at `base`, less the errors of `base` itself.

    The model is left at `base`.
    """
    model = quantized.model
    assert isinstance(model, EarlyExitModel)
    error, count = error_of(task, options), sum(len(batch) for batch in images)
    quantized.set_widths(base)
    seen = [_look(reference, model, batch) for batch in images]
    everything = range(len(model.exit_blocks))
    zero = _errors_at(model, seen, model.backbone.depth + 1, everything, error)  # (E + 1,)

    def at(unit: Unit, pair: BitPair) -> tuple[float, ...]:
        change = [0.0] * len(zero)
        if pair != unit.pair(base):
            quantized.set_widths(unit.with_pair(base, pair, space.heads))
            touched = touched_exits(unit, model.exit_blocks)
            found = _errors_at(model, seen, first_block(unit, model.backbone.depth), touched, error)
            for index, value in zip(touched, found, strict=True):
                change[index] = (value - zero[index]) / count
        return tuple(change)

    errors = []
    for unit, pairs in zip(space.units, space.pairs, strict=True):
        weight, activation = unit.pair(base)
        weights: tuple[tuple[float, ...], ...] = ()
        if unit.layer != ATTENTION:
            weights = tuple(at(unit, (bits, activation)) for bits in sorted({pair[0] for pair in pairs}))
        widths = sorted({pair[1] for pair in pairs})
        pair_at = [(bits, bits) if unit.layer == ATTENTION else (weight, bits) for bits in widths]
        errors.append(UnitErrors(unit.name, weights, tuple(at(unit, pair) for pair in pair_at)))
    quantized.set_widths(base)
    return tuple(errors)


def first_block(unit: Unit, depth: int) -> int:
    """The first block that must be run again when a unit changes: 0 is the embedding, depth + 1 none at all."""
    if unit.kind in ("layer", "block"):
        return unit.number
    return 0 if unit.kind == "patch" else depth + 1


def touched_exits(unit: Unit, exit_blocks: Sequence[int]) -> list[int]:
    """Exits (the last is full depth) whose answers a unit has a part in: heads only speak for themselves."""
    if unit.kind == "head":
        return [unit.number]
    if unit.kind == "classifier":
        return [len(exit_blocks) - 1]
    return [index for index, block in enumerate(exit_blocks) if block >= unit.number]


def _look(reference: EarlyExitModel, model: EarlyExitModel, images: Tensor) -> Seen:
    first = model.backbone.embedding(images)
    states = [first, *(tokens for _, tokens in model.backbone.walk(first))]
    return Seen(states, [output.float() for output in reference.forward_all(images).outputs], images)


def states_from(model: EarlyExitModel, batch: Seen, first: int) -> list[Tensor]:
    """Tokens in front of the first block and after every block, everything from block `first` on being run again."""
    if first == 0:
        tokens = model.backbone.embedding(batch.images)
        return [tokens, *(later for _, later in model.backbone.walk(tokens))]
    return [*batch.states[:first], *(tokens for _, tokens in model.backbone.walk(batch.states[first - 1], first))]


def _errors_at(
    model: EarlyExitModel, seen: Sequence[Seen], first: int, exits: Sequence[int], error: Error
) -> list[float]:
    """Errors at some exits, summed over the images, when everything from block `first` on is run again."""
    sums = []
    for batch in seen:
        states = states_from(model, batch, first) if first <= model.backbone.depth else batch.states
        found = [
            error(model.predict(index, states[1 : model.exit_blocks[index] + 1]).float(), batch.wanted[index])
            for index in exits
        ]
        sums.append(torch.stack([values.double().sum() for values in found]))
    return [float(value) for value in torch.stack(sums).sum(dim=0)]  # the device is waited for once
