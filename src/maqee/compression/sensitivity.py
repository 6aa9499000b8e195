"""Errors that every width of every unit causes at the exits: the torch side of `maqee.apq.unit_errors`.

One unit is quantized and all else computes in full precision: what is then wrong at the exits is due to it alone, and
even the small errors of wide grids stand out from few images. The tokens in front of every block are kept from one
pass, so that only the blocks from the changed one on are run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.apq.options import SearchOptions
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import ATTENTION, Space, Unit
from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.quant.places import Place
from maqee.tasks import Task
from maqee.widths import BitPair, BitSettings

LEAST_IMAGES = 4
Error = Callable[[Tensor, Tensor], Tensor]  # output and the full-precision model's, to one number a sample


class Seen(NamedTuple):
    """What is kept of one batch, all in full precision.

    Attributes:
        images: the batch itself.
        states: tokens in front of the first block and after every block.
        wanted: outputs at every exit and at full depth.
    """

    images: Tensor
    states: list[Tensor]
    wanted: list[Tensor]


def squared_error(output: Tensor, wanted: Tensor) -> Tensor:
    """||o - f||^2: (batch, ...) to (batch,)."""
    return (output - wanted).flatten(1).square().sum(dim=1)


def spread(wanted: Tensor) -> Tensor:
    """||f - mean f||^2, what squared errors are held against: (batch, ...) to (batch,)."""
    flat = wanted.flatten(1)
    return (flat - flat.mean(dim=1, keepdim=True)).square().sum(dim=1)


def error_runs(space: Space, depth: int) -> float:
    """Passes over the network, in fractions, that measuring all widths on the same images takes."""
    total = 0.0
    for unit, pairs in zip(space.units, space.pairs, strict=True):
        first = unit.number if unit.kind in ("layer", "block") else {"patch": 1}.get(unit.kind, depth)
        total += len(_pairs_to_measure(unit, pairs)) * (depth - first + 1) / depth
    return total


@torch.inference_mode()
def measure_unit_errors(
    quantized: QuantizedModel,
    images: Sequence[Tensor],
    base: BitSettings,
    space: Space,
    options: SearchOptions,
    task: Task,
) -> tuple[UnitErrors, ...]:
    """Errors of all units at all widths.

    Weight widths are measured at the most activation bits and activation widths at the most weight bits; what both have
    in common, the error at the most bits of both, is taken off the weights'.

    Args:
        quantized: fitted at all widths of the space.
        images: batches of calibration images.
        base: the most bits of everything.
        space: units and their pairs.
        options: the signal.
        task: what the outputs are.
    """
    model = quantized.model
    assert isinstance(model, EarlyExitModel)
    quantized.set_widths(base)
    with quantized.in_float():
        seen = [_look(model, batch) for batch in images]
    if options.signal == "divergence":
        scale = torch.full((len(model.exit_blocks),), float(sum(len(batch) for batch in images)), dtype=torch.float64)
    else:
        sums = [torch.stack([spread(output).double().sum() for output in batch.wanted]) for batch in seen]
        scale = torch.stack(sums).cpu().sum(dim=0).clamp(min=1e-12)

    def error(output: Tensor, wanted: Tensor) -> Tensor:
        return (
            task.distillation(output, wanted, 1.0) if options.signal == "divergence" else squared_error(output, wanted)
        )

    def at(unit: Unit, pair: BitPair) -> Tensor:
        """Errors at every exit: (E + 1,)."""
        quantized.set_widths(unit.with_pair(base, pair, space.heads))
        with _quantized_alone(quantized, unit):
            return _errors(model, seen, unit, error)

    found = []
    for unit, pairs in zip(space.units, space.pairs, strict=True):
        wanted = _pairs_to_measure(unit, pairs)
        errors = torch.stack([at(unit, pair) for pair in wanted]).cpu()  # one wait for the device a unit
        measured = dict(zip(wanted, errors / scale, strict=True))
        widest = pairs[-1]
        weights = [measured[pair] - measured[widest] for pair in measured if pair[1] == widest[1]]
        activations = [measured[pair] for pair in measured if unit.layer == ATTENTION or pair[0] == widest[0]]
        found.append(UnitErrors(unit.name, _rows(weights) if unit.layer != ATTENTION else (), _rows(activations)))
    quantized.set_widths(base)
    return tuple(found)


def _pairs_to_measure(unit: Unit, pairs: Sequence[BitPair]) -> list[BitPair]:
    """Every weight width at the most activation bits, and the other way round."""
    if unit.layer == ATTENTION:
        return list(pairs)
    weight, activation = pairs[-1]
    return [pair for pair in pairs if pair[0] == weight or pair[1] == activation]


def _rows(errors: Sequence[Tensor]) -> tuple[tuple[float, ...], ...]:
    """From the fewest bits to the most; fewer bits are never better than more, whatever few images say."""
    table = torch.stack(list(errors))
    table = table.flip(0).cummax(dim=0).values.flip(0).clamp(min=0)
    return tuple(tuple(float(value) for value in row) for row in table)


@contextmanager
def _quantized_alone(quantized: QuantizedModel, unit: Unit) -> Iterator[None]:
    """One unit quantized, all else in full precision."""
    with quantized.in_float():
        modules: list[QuantLayer | QuantAttend] = [*quantized.layers.values(), *quantized.attends.values()]
        for module in modules:
            module.enabled = belongs(quantized.places[module.name], unit)
        yield


def belongs(place: Place, unit: Unit) -> bool:
    """Whether a layer or attention product is a part of a unit."""
    if unit.kind in ("layer", "block"):
        same = place.role == "block" and place.block == unit.number
        return same and (unit.kind == "block" or place.layer == unit.layer)
    return place.role == unit.kind and (unit.kind != "head" or place.head == unit.number)


def _look(model: EarlyExitModel, images: Tensor) -> Seen:
    first = model.backbone.embedding(images)
    states = [first, *(tokens for _, tokens in model.backbone.walk(first))]
    wanted = [model.predict(index, states[1 : block + 1]).float() for index, block in enumerate(model.exit_blocks)]
    return Seen(images, states, wanted)


def _errors(model: EarlyExitModel, seen: Sequence[Seen], unit: Unit, error: Error) -> Tensor:
    """Errors at every exit, summed over the images: (E + 1,). Only what the unit can change is run again."""
    total = torch.zeros(len(model.exit_blocks), dtype=torch.float64, device=seen[0].images.device)
    for batch in seen:
        states = batch.states
        if unit.kind == "patch":
            tokens = model.backbone.embedding(batch.images)
            states = [tokens, *(later for _, later in model.backbone.walk(tokens))]
        elif unit.kind in ("layer", "block"):
            again = (tokens for _, tokens in model.backbone.walk(states[unit.number - 1], unit.number))
            states = [*states[: unit.number], *again]
        for index, block in enumerate(model.exit_blocks):
            if _reaches(unit, index, block, len(model.exit_blocks)):
                output = model.predict(index, states[1 : block + 1]).float()
                total[index] += error(output, batch.wanted[index]).double().sum()
    return total


def _reaches(unit: Unit, index: int, block: int, exits: int) -> bool:
    """Whether a unit has a part in the answer of an exit."""
    if unit.kind == "head":
        return index == unit.number
    if unit.kind == "classifier":
        return index == exits - 1
    return unit.kind == "patch" or block >= unit.number
