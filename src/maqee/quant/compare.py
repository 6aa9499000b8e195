"""Simulated against executed: layer by layer from the same input, and end to end.

Sums of whole numbers are the same in both, to the bit, unless they are too large for float32. Where they are, a layer's
outputs differ in the last digits, and a number on the border between two codes may be rounded the other way; from there
on the runs are different runs. So end to end the question is whether the *first* codes that differ are all such ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from maqee.progress import Steps
from maqee.quant.attend import QuantAttend
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid
from maqee.quant.integer import check_executable, execute_integers
from maqee.quant.layer import QuantLayer
from maqee.quant.quantized_model import QuantizedModel

TIE = 1e-4  # of a step


@dataclass(frozen=True)
class FirstDifference:
    """Where the executed run of an image leaves the simulated one.

    Attributes:
        image: its index.
        where: the layer whose input, or the operand, that is first rounded to other codes; "logits" if none is.
        codes: how many of its codes differ.
        distance: how far, in steps, the two numbers that became different codes are apart, at most. A border between
            codes lies between them, so this is also how far from a tie they can be. For logits, the margin of the best
            over the second, relative to the largest.
    """

    image: int
    where: str
    codes: int
    distance: float


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        images: compared end to end.
        layers: largest difference of each layer's (or attention product's) outputs from the same input, relative to
            the largest output.
        first: one entry for every image with a code that differs anywhere, or with another argmax.
        disagreeing: images with another argmax, at full depth or at any exit.
    """

    images: int
    layers: dict[str, float]
    first: tuple[FirstDifference, ...]
    disagreeing: tuple[int, ...]

    @property
    def agreement(self) -> float:
        """Share of images with the same argmax."""
        return 1 - len(self.disagreeing) / self.images

    @property
    def worst_layer(self) -> float:
        """The largest relative difference of any layer."""
        return max(self.layers.values(), default=0.0)

    def only_ties(self, tie: float = TIE) -> bool:
        """Whether every difference begins at a rounding tie."""
        return all(entry.distance <= tie for entry in self.first)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "images": self.images,
            "agreement": self.agreement,
            "disagreeing": [asdict(entry) for entry in self.first if entry.image in self.disagreeing],
            "images_with_a_differing_code": len(self.first),
            "furthest_from_a_tie": max((entry.distance for entry in self.first), default=0.0),
            "only_ties": self.only_ties(),
            "worst_layer": self.worst_layer,
            "layers": self.layers,
        }


class Seen(NamedTuple):
    """Something that is about to be rounded: (batch * n, ...)."""

    where: str
    grid: Grid
    x: Tensor


@torch.no_grad()
def compare(
    quantized: QuantizedModel, images: Tensor, batch_size: int = 8, layer_images: int = 8, progress: Steps | None = None
) -> Comparison:
    """Run images simulated and executed.

    Args:
        quantized: a model on the CPU.
        images: (n, channels, height, width), normalised.
        batch_size: images at a time; the inputs of all layers of one batch are kept in memory.
        layer_images: how many of the images are also compared layer by layer.
        progress: told how many images are done.
    """
    first: list[FirstDifference] = []
    disagreeing: list[int] = []
    layers = compare_layers(quantized, images[:layer_images])
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        simulated: list[Seen] = []
        with _watching(quantized, simulated.append):
            outputs = _outputs(quantized, batch)
        finder = _FirstDifferences(simulated, len(batch))
        with execute_integers(quantized), _watching(quantized, finder.look):
            executed = _outputs(quantized, batch)
        finder.look_at_logits(outputs, executed)
        first += [FirstDifference(start + image, *finder.found[image]) for image in sorted(finder.found)]
        disagreeing += [start + image for image in finder.disagreeing]
        if progress is not None:
            progress.update(start + len(batch))
    return Comparison(len(images), layers, tuple(first), tuple(disagreeing))


@torch.no_grad()
def compare_layers(quantized: QuantizedModel, images: Tensor) -> dict[str, float]:
    """Largest relative difference of every layer and attention product, from the inputs of the simulated run.

    Executed is held against simulated, and against plain fake quantization, which multiplies the numbers that the codes
    stand for and shares no step with the executed run but the rounding of inputs.
    """
    differences: dict[str, float] = {}

    def note(name: str, executed: Tensor, *others: Tensor) -> None:
        for other in others:
            found = float((executed - other).abs().max() / other.abs().max().clamp(min=1e-30))
            differences[name] = max(found, differences.get(name, 0.0))

    def on_layer(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        assert isinstance(layer, QuantLayer)
        if layer.executing or layer.input is None or layer.bits is None:
            return
        with _executing(layer):
            note(layer.name, layer(*inputs), output, layer.from_values(*inputs))

    def on_attend(attend: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        assert isinstance(attend, QuantAttend)
        q, k, v, *rest = inputs
        on_grid = {
            name: attend.grids[name](x) if name in attend.grids else x for name, x in zip("qkv", (q, k, v), strict=True)
        }
        plain = on_grid["q"] @ on_grid["k"].transpose(-2, -1) * q.shape[-1] ** -0.5
        scores, p = attend.scores(q, k), attend.probabilities(q, k, *rest)
        with _executing(attend):  # p is the same for both: the input of the second product
            note(f"{attend.name} q x k", attend.scores(q, k), scores, plain)
            plain = (attend.grids["p"](p) if "p" in attend.grids else p) @ on_grid["v"]
            note(f"{attend.name} p x v", attend.mix(p, v), output, plain)

    check_executable(quantized)
    hooks = [layer.register_forward_hook(on_layer) for layer in quantized.layers.values()]
    hooks += [attend.register_forward_hook(on_attend) for attend in quantized.attends.values()]
    try:
        quantized.run_everything(images)
    finally:
        for hook in hooks:
            hook.remove()
    return differences


@contextmanager
def _executing(module: QuantLayer | QuantAttend) -> Iterator[None]:
    module.executing = True
    try:
        yield
    finally:
        module.executing = False


def steps_apart(grid: Grid, one: Tensor, other: Tensor) -> Tensor:
    """Distance of numbers in steps of the grid (the finer ones, if it has two)."""
    if isinstance(grid, LogSqrt2Grid):
        return 2 * (torch.log2(one) - torch.log2(other)).abs()
    return (one - other).abs() / (grid.fine if isinstance(grid, TwinGrid) else grid.scale)


class _FirstDifferences:
    """Holds an executed run against the record of the simulated one, rounding by rounding."""

    def __init__(self, simulated: list[Seen], images: int) -> None:
        self.simulated, self.images, self.place = simulated, images, 0
        self.found: dict[int, tuple[str, int, float]] = {}
        self.disagreeing: list[int] = []

    def look(self, executed: Seen) -> None:
        """The next thing that is rounded."""
        where, grid, x = self.simulated[self.place]
        self.place += 1
        assert where == executed.where
        other = (grid(x) != grid(executed.x)).reshape(self.images, -1)  # windows of one image stay together
        for image in other.any(dim=1).nonzero().flatten().tolist():
            if image not in self.found:
                distance = steps_apart(grid, x, executed.x).reshape(self.images, -1)[image][other[image]]
                self.found[image] = (where, int(other[image].sum()), float(distance.max()))

    def look_at_logits(self, simulated: list[Tensor], executed: list[Tensor]) -> None:
        """Other answers; without any differing code only the answers themselves can be tied."""
        for one, other in zip(simulated, executed, strict=True):
            for image in (one.argmax(dim=-1) != other.argmax(dim=-1)).nonzero().flatten().tolist():
                if image not in self.disagreeing:
                    self.disagreeing.append(image)
                if image not in self.found:
                    best, second = one[image].topk(2).values.tolist()
                    self.found[image] = ("logits", 0, (best - second) / float(one[image].abs().max()))


@contextmanager
def _watching(quantized: QuantizedModel, look: Callable[[Seen], None]) -> Iterator[None]:
    """Show everything that is rounded, in order."""

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        if layer.enabled and layer.input is not None:
            look(Seen(layer.name, layer.input.grid, x))

    def on_operand(attend: QuantAttend, operand: str, x: Tensor) -> None:
        if attend.enabled and operand in attend.grids:
            look(Seen(f"{attend.name} {operand}", attend.all_grids()[operand].grid, x))

    with quantized.observing(on_layer, on_operand):
        yield


def _outputs(quantized: QuantizedModel, images: Tensor) -> list[Tensor]:
    """Logits of every exit, or of the one output there is."""
    result = quantized.run_everything(images)
    return [result] if isinstance(result, Tensor) else list(result.outputs)
