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
from maqee.apq.units import Space, Unit
from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel
from maqee.tasks import Task
from maqee.widths import BitPair, BitSettings

LEAST_IMAGES = 8
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
    """Passes over the network, in fractions, that measuring all widths on the same images takes."""
    total = 0.0
    for unit, pairs in zip(space.units, space.pairs, strict=True):
        changes = len({pair[0] for pair in pairs}) + len({pair[1] for pair in pairs}) - 2
        if unit.layer == "attention":
            changes = len(pairs) - 1
        first = unit.number if unit.kind in ("layer", "block") else {"patch": 1}.get(unit.kind, depth)
        total += changes * (depth - first + 1) / depth
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
    """Errors of all units, each width measured with everything else at `base`, less the errors of `base` itself."""
    model = quantized.model
    assert isinstance(model, EarlyExitModel)
    error, count = error_of(task, options), sum(len(batch) for batch in images)
    quantized.set_widths(base)
    seen = [_look(reference, model, batch) for batch in images]
    zero = _errors_from(model, seen, 1, error)  # (E + 1,)

    def at(unit: Unit, pair: BitPair) -> tuple[float, ...]:
        if pair == unit.pair(base):
            return (0.0,) * len(zero)
        quantized.set_widths(unit.with_pair(base, pair, space.heads))
        first = unit.number if unit.kind in ("layer", "block") else 0 if unit.kind == "patch" else model.backbone.depth
        change = _errors_from(model, seen, first, error) - zero
        if unit.kind == "head":  # heads only speak for themselves
            change = torch.where(torch.arange(len(zero)) == unit.number, change, 0.0)
        return tuple(float(value) for value in change / count)

    found = []
    for unit, pairs in zip(space.units, space.pairs, strict=True):
        weight, activation = unit.pair(base)
        weights: tuple[tuple[float, ...], ...] = ()
        if unit.layer != "attention":
            weights = tuple(at(unit, (bits, activation)) for bits in sorted({pair[0] for pair in pairs}))
        widths = sorted({pair[1] for pair in pairs})
        pair_at = [(bits, bits) if unit.layer == "attention" else (weight, bits) for bits in widths]
        found.append(UnitErrors(unit.name, weights, tuple(at(unit, pair) for pair in pair_at)))
    quantized.set_widths(base)
    return tuple(found)


def _look(reference: EarlyExitModel, model: EarlyExitModel, images: Tensor) -> Seen:
    first = model.backbone.embedding(images)
    states = [first, *(tokens for _, tokens in model.backbone.walk(first))]
    return Seen(states, [output.float() for output in reference.forward_all(images).outputs], images)


def _errors_from(model: EarlyExitModel, seen: Sequence[Seen], first: int, error: Error) -> Tensor:
    """Errors at every exit, summed over the images, when everything from block `first` on is run again.

    Exits in front of it are those of the pass that was kept; 0 runs the embedding again too.
    """
    total = torch.zeros(len(model.exit_blocks), dtype=torch.float64)
    for batch in seen:
        states = batch.states
        if first == 0:
            tokens = model.backbone.embedding(batch.images)
            states = [tokens, *(later for _, later in model.backbone.walk(tokens))]
        else:
            again = (tokens for _, tokens in model.backbone.walk(states[first - 1], first))
            states = [*states[:first], *again]
        for index, block in enumerate(model.exit_blocks):
            output = model.predict(index, states[1 : block + 1]).float()
            total[index] += float(error(output, batch.wanted[index]).double().sum())
    return total
