"""The search's questions, answered by a real model: passes over calibration images, one block at a time where enough.

The score of another width at block l needs the output of block l only. So the inputs of every block are kept from the
last pass, for a fixed part of the images, and that one block is run again: two calibration passes for all blocks
together, where running the network anew for each block would take as many passes as there are blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.apq import BitSettings, BlockRisks, Trace
from maqee.apq.options import SearchOptions
from maqee.apq.risks import EPSILON
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import Space, Unit
from maqee.compression.sensitivity import LEAST_IMAGES, belongs, error_runs, measure_unit_errors
from maqee.compression.snapshot import load_snapshot, save_snapshot
from maqee.evaluation.record import Batch
from maqee.exits import EarlyExitModel
from maqee.freed_memory import give_back
from maqee.parts import Part
from maqee.quant import QuantizedModel
from maqee.spare_memory import spare_bytes
from maqee.tasks import Task

Recover = Callable[[QuantizedModel, BitSettings, Sequence[float], int], None]


@dataclass(frozen=True)
class _Answers:
    """What a model says about a batch; (batch, exits + 1) each."""

    confidence: Tensor
    loss: Tensor
    correct: Tensor


class ModelMeasure:
    """A quantized early-exit model beside its frozen full-precision reference.

    Args:
        reference: the full-precision model, on the device.
        quantized: its quantized copy, fitted at every width the search may use.
        batches: calibration images (normalised) and targets.
        task: loss, confidence and score.
        model_hash: of the checkpoint, for the trace.
        scored: images that scores of other widths of blocks are measured on, the first ones; all when left out. What
            goes into their blocks is kept, so 0 where nobody asks for such scores.
        recover: trains the quantized model; only needed by searches with recovery.
        folder: where snapshots of trained weights go; only needed by searches with recovery.
        exit_ms: milliseconds of an image that leaves at each exit, at given widths, where measured time is the cost.
        head_ms: of these, what each exit's head takes.
    """

    def __init__(
        self,
        reference: EarlyExitModel,
        quantized: QuantizedModel,
        batches: Sequence[Batch],
        task: Task,
        model_hash: str,
        scored: int | None = None,
        recover: Recover | None = None,
        folder: Path | None = None,
        exit_ms: Callable[[BitSettings], tuple[float, ...] | None] = lambda bits: None,
        head_ms: tuple[float, ...] | None = None,
    ) -> None:
        assert isinstance(quantized.model, EarlyExitModel)
        self.reference, self.quantized, self.model = reference.eval(), quantized, quantized.model
        self.batches, self.task, self.model_hash = batches, task, model_hash
        self.scored = sum(len(images) for images, _ in batches) if scored is None else scored
        self.train_model, self.folder, self.exit_ms, self.head_ms = recover, folder, exit_ms, head_ms
        self._start = quantized.bit_settings
        self.passes = 0.0  # calibration passes of the quantized model so far, in fractions where only a part was run
        self._inputs: list[list[Tensor]] = []  # for each batch, the tokens in front of all blocks in the last pass
        self._inputs_of: BitSettings | None = None
        self._terms: NDArray[np.float64] = np.zeros((0, 0, 2))  # (images, blocks, 2) terms of that pass
        self._reference_blocks: dict[int, list[Tensor]] = {}
        self._reference_answers: list[_Answers] = []
        self._read_reference()

    @property
    def start(self) -> BitSettings:
        """Widths as the model was fitted."""
        return self._start

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.reference.backbone.depth

    @property
    def exit_blocks(self) -> tuple[int, ...]:
        """The block after which each exit sits, and the depth."""
        return self.reference.exit_blocks

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the model costs."""
        return tuple(self.reference.parts())

    # --- passes ------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def trace(self, bits: BitSettings) -> Trace:
        """A pass over all calibration images."""
        self.quantized.set_widths(bits)
        self.model.eval()
        answers, drift, noise = [], [], []
        self._inputs, left = [], self.scored
        for index, (images, targets) in enumerate(self.batches):
            states = self._states(self.model, images)
            answers.append(self._answer(self.model, states[1:], targets))
            compared = zip(self._reference_outputs(index), states[1:], strict=True)
            pairs = [(range_deviation(*pair), noise_ratio(*pair)) for pair in compared]
            drift.append(torch.stack([pair[0] for pair in pairs], dim=1))
            noise.append(torch.stack([pair[1] for pair in pairs], dim=1))
            if left > 0:
                self._inputs.append([x[:left] for x in states[:-1]])
                left -= len(images)
        self._inputs_of = bits
        terms = torch.stack([torch.cat(drift), torch.cat(noise)], dim=2).cpu()  # a device is waited for at the end
        self._terms = terms[: self.scored].double().numpy()
        self.passes += 1
        give_back()
        return Trace(
            exit_blocks=self.reference.exit_blocks,
            **_arrays("float_", self._reference_answers),
            **_arrays("", answers),
            drift=terms[..., 0].contiguous().numpy(),
            noise=terms[..., 1].contiguous().numpy(),
            parts=self.parts,
            bits=self.quantized.bit_settings,
            task=self.task.name,
            model=self.model_hash,
            exit_ms=self.exit_ms(bits),
            head_ms=self.head_ms,
        )

    @torch.inference_mode()
    def block_risks(self, bits: BitSettings, widths: Sequence[Sequence[int]], path: bool) -> BlockRisks:
        """Run single blocks at other weight widths from the inputs of the pass at `bits`."""
        assert self.scored, "this measure was made without images to score blocks on"
        if self._inputs_of != bits:
            self.trace(bits)
        self.quantized.set_widths(bits)
        lowest, highest = min(map(min, widths)), max(map(max, widths))
        shape = (self.depth, highest - lowest + 1)
        sums = torch.full((*shape, 2), torch.nan, dtype=torch.float64, device=self.batches[0][0].device)
        weights = bits.block_weights
        others = [[width for width in wanted if width != now] for wanted, now in zip(widths, weights, strict=True)]
        for block, wanted in enumerate(others, start=1):
            sums[block - 1, [width - lowest for width in wanted]] = 0.0
        for index, inputs in enumerate(self._inputs):
            reference = self._reference_outputs(index)  # once for all blocks: it may have to be computed again
            for block, wanted in enumerate(others, start=1):
                for width in wanted:
                    self.quantized.set_bits(block, width)
                    sums[block - 1, width - lowest] += self._deviation(block, inputs[block - 1], reference, path)
                self.quantized.set_bits(block, weights[block - 1])
        totals = sums.cpu().numpy() / self._kept_images()
        for index, (asked, now) in enumerate(zip(widths, weights, strict=True)):
            if now in asked:  # the pass itself has run the block at this width
                terms = self._terms[:, index:] if path else self._terms[:, index : index + 1]
                totals[index, now - lowest] = terms.sum(axis=(0, 1)) / len(terms)
        share = self._kept_images() / sum(len(images) for images, _ in self.batches)
        runs = sum(len(wanted) * (self.depth - block if path else 1) for block, wanted in enumerate(others))
        self.passes += share * runs / self.depth
        return BlockRisks(lowest, totals[..., 0], totals[..., 1])

    def can_switch(self, unit: Unit) -> bool:
        """Whether a part of the unit was fitted at several widths; in a head some layers may be fixed."""
        mine = [place for place in self.quantized.places.values() if belongs(place, unit)]
        if unit.kind == "head":
            mine = [place for place in mine if not place.attention]
        return any(self.quantized.switches(place.name) for place in mine)

    def unit_errors(
        self, base: BitSettings, space: Space, options: SearchOptions, passes: float
    ) -> tuple[UnitErrors, ...]:
        """Errors of every width of every unit, on as many images as fit into that many calibration passes."""
        total = sum(len(images) for images, _ in self.batches)
        runs = error_runs(space, self.depth)
        count = min(total, max(LEAST_IMAGES, int(passes * total / (runs + 1))))  # one for the pass at the base
        images, left = [], count
        for batch, _ in self.batches:
            if left > 0:
                images.append(batch[:left])
                left -= len(batch)
        self.model.eval()
        found = measure_unit_errors(self.quantized, images, base, space, options, self.task)
        self._inputs_of = None
        self.passes += (runs + 1) * count / total
        give_back()
        return found

    def _deviation(self, block: int, x: Tensor, reference: list[Tensor], path: bool) -> Tensor:
        """Terms of QID and inverse SQNR, (2,), of one block's output or of all from it on, summed over a batch."""
        total = torch.zeros(2, dtype=torch.float64, device=x.device)
        for number, output in self.model.backbone.walk(x, block, self.depth if path else block):
            wanted = reference[number - 1][: len(output)]
            terms = range_deviation(wanted, output), noise_ratio(wanted, output)
            total += torch.stack([term.double().sum() for term in terms])
        return total

    def _kept_images(self) -> int:
        return sum(len(inputs[0]) for inputs in self._inputs)

    # --- training ----------------------------------------------------------------------------------------------------

    def recover(self, bits: BitSettings, exit_mass: Sequence[float], steps: int) -> None:
        """Train at these bits."""
        assert self.train_model is not None, "this measure was made without training images"
        self.quantized.set_widths(bits)
        self.train_model(self.quantized, bits, exit_mass, steps)
        self._inputs_of = None

    def snapshot(self, name: str) -> None:
        """Keep all weights, codes and grids in a file."""
        save_snapshot(self.quantized, self._snapshot_file(name))

    def restore(self, name: str) -> None:
        """Bring back what a snapshot kept."""
        load_snapshot(self.quantized, self._snapshot_file(name))
        self._inputs_of = None

    def has_snapshot(self, name: str) -> bool:
        """Whether a snapshot was kept, by this process or an earlier one."""
        return self._snapshot_file(name).exists()

    def _snapshot_file(self, name: str) -> Path:
        assert self.folder is not None, "this measure was made without a folder"
        return self.folder / f"{name}.safetensors"

    # --- running -----------------------------------------------------------------------------------------------------

    def _states(self, model: EarlyExitModel, images: Tensor) -> list[Tensor]:
        """Tokens after the embedding and after every block: each block's input, and its output behind it."""
        first = model.backbone.embedding(images)
        return [first, *(x for _, x in model.backbone.walk(first))]

    def _answer(self, model: EarlyExitModel, blocks: list[Tensor], targets: Tensor) -> _Answers:
        """Every exit's confidence, loss and score."""
        outputs = [model.predict(index, blocks[:block]).float() for index, block in enumerate(model.exit_blocks)]
        return _Answers(
            torch.stack([self.task.confidence(output) for output in outputs], dim=1),
            torch.stack([self.task.loss(output, targets) for output in outputs], dim=1),
            torch.stack([self.task.score(output, targets).float() for output in outputs], dim=1),
        )

    @torch.inference_mode()
    def _read_reference(self) -> None:
        """The full-precision model's answers, and its block outputs as far as memory allows."""
        room = spare_bytes(self.batches[0][0].device)
        for index, (images, targets) in enumerate(self.batches):
            outputs = self._states(self.reference, images)[1:]
            self._reference_answers.append(self._answer(self.reference, outputs, targets))
            room -= sum(output.numel() * output.element_size() for output in outputs)
            if room > 0:
                self._reference_blocks[index] = outputs

    def _reference_outputs(self, index: int) -> list[Tensor]:
        if index in self._reference_blocks:
            return self._reference_blocks[index]
        return self._states(self.reference, self.batches[index][0])[1:]


def range_deviation(reference: Tensor, output: Tensor) -> Tensor:
    """`maqee.apq.risks.range_deviation` on tensors: (batch, ...) to (batch,)."""
    ours, theirs = output.flatten(1), reference.flatten(1)
    width = (theirs.amax(dim=1) - theirs.amin(dim=1)).clamp(min=EPSILON)
    return ((ours.amax(dim=1) - ours.amin(dim=1)) / width - 1).square()


def noise_ratio(reference: Tensor, output: Tensor) -> Tensor:
    """`maqee.apq.risks.noise_ratio` on tensors: (batch, ...) to (batch,)."""
    energy = reference.flatten(1).square().sum(dim=1).clamp(min=EPSILON)
    return (output - reference).flatten(1).square().sum(dim=1) / energy


def _arrays(prefix: str, answers: Sequence[_Answers]) -> dict[str, NDArray[np.float32]]:
    names = ("confidence", "loss", "correct")
    return {f"{prefix}{name}": torch.cat([getattr(part, name) for part in answers]).cpu().numpy() for name in names}
