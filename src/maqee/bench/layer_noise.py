"""The noise that a layer's own rounding makes in its output, plain and weighed by how much the loss minds it.

All other layers compute in float. The second is the Fisher term: the squared gradient of an exit's loss with respect to
the layer's output, times the squared error there; labels are drawn from the model's own answers where there are labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.apq.units import Unit
from maqee.bench.signal_moves import Change
from maqee.evaluation.record import Batch
from maqee.exits import EarlyExitModel
from maqee.quant import QuantizedModel
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.tasks import Task
from maqee.widths import BitSettings

Floats = NDArray[np.float64]


class LayerNoise(NamedTuple):
    """What every change adds to the noise, image by image.

    Attributes:
        own: (changes, images) squared error of the layer's output over its squared size.
        fisher: (changes, images, exits + 1) squared error times squared gradients of the exits' losses.
    """

    own: Floats
    fisher: Floats


def layer_noise(
    quantized: QuantizedModel, batches: Sequence[Batch], base: BitSettings, changes: Sequence[Change], task: Task
) -> LayerNoise:
    """Noise of the changed layers' outputs, less what it is at `base`."""
    model = quantized.model
    assert isinstance(model, EarlyExitModel)
    generator = torch.Generator().manual_seed(0)
    own: list[Tensor] = []
    fisher: list[Tensor] = []
    quantized.set_widths(base)
    with quantized.in_float():
        for batch in batches:
            tokens, outputs, gradients = _float_pass(quantized, model, batch, task, generator)
            noise = [_added_noise(quantized, model, tokens, outputs, gradients, base, change) for change in changes]
            own.append(torch.stack([pair[0] for pair in noise]).cpu())
            fisher.append(torch.stack([pair[1] for pair in noise]).cpu())
    quantized.set_widths(base)
    return LayerNoise(torch.cat(own, dim=1).numpy(), torch.cat(fisher, dim=1).numpy())


def module_of(quantized: QuantizedModel, unit: Unit) -> QuantLayer | QuantAttend:
    """The quantized layer or attention product that a unit stands for."""
    [place] = [
        place
        for place in quantized.places.values()
        if place.role == "block" and (place.block, place.layer) == (unit.number, unit.layer)
    ]
    return quantized.attends[place.name] if place.attention else quantized.layers[place.name]


@contextmanager
def _catching(modules: Sequence[QuantLayer | QuantAttend], caught: dict[str, Tensor]) -> Iterator[None]:
    """Collect the outputs of modules by their names."""

    def keep(module: torch.nn.Module, inputs: object, output: Tensor) -> None:
        assert isinstance(module, QuantLayer | QuantAttend)
        caught[module.name] = output

    hooks = [module.register_forward_hook(keep) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _float_pass(
    quantized: QuantizedModel, model: EarlyExitModel, batch: Batch, task: Task, generator: torch.Generator
) -> tuple[list[Tensor], dict[str, Tensor], dict[str, list[Tensor]]]:
    """Tokens in front of every block, outputs of all layers of blocks, and squared gradients of all exits' losses."""
    images, targets = batch
    names = [place.name for place in quantized.places.values() if place.role == "block"]
    modules = [quantized.attends.get(name) or quantized.layers[name] for name in names]
    by_name: dict[str, Tensor] = {}
    with torch.enable_grad(), _catching(modules, by_name):
        first = model.backbone.embedding(images.clone().requires_grad_())
        tokens = [first, *(later for _, later in model.backbone.walk(first))]
        gradients: dict[str, list[Tensor]] = {name: [] for name in by_name}
        for index, block in enumerate(model.exit_blocks):
            output = model.predict(index, tokens[1 : block + 1])
            loss = task.loss(output, _drawn(output, targets, task, generator)).sum()
            found = torch.autograd.grad(loss, list(by_name.values()), retain_graph=True, allow_unused=True)
            for (name, value), gradient in zip(by_name.items(), found, strict=True):
                gradients[name].append(torch.zeros_like(value) if gradient is None else gradient.square())
    outputs = {name: value.detach() for name, value in by_name.items()}
    return [state.detach() for state in tokens], outputs, gradients


def _drawn(output: Tensor, targets: Tensor, task: Task, generator: torch.Generator) -> Tensor:
    """Labels as probable as the model says; other kinds of targets as they are."""
    if task.targets != "labels":
        return targets
    drawn = torch.multinomial(output.detach().float().softmax(dim=-1).cpu(), 1, generator=generator)
    return drawn.squeeze(1).to(output.device)


@torch.no_grad()
def _added_noise(
    quantized: QuantizedModel,
    model: EarlyExitModel,
    tokens: Sequence[Tensor],
    outputs: dict[str, Tensor],
    gradients: dict[str, list[Tensor]],
    base: BitSettings,
    change: Change,
) -> tuple[Tensor, Tensor]:
    """(batch,) plain and (batch, exits + 1) weighed noise that a change adds."""
    unit, module = change.unit, module_of(quantized, change.unit)

    def noise(bits: BitSettings) -> tuple[Tensor, Tensor]:
        quantized.set_widths(bits)
        caught: dict[str, Tensor] = {}
        module.enabled = True
        with _catching([module], caught):
            model.backbone.run_block(unit.number, tokens[unit.number - 1])
        module.enabled = False
        wanted = outputs[module.name]
        error = (caught[module.name] - wanted).square().flatten(1).double()
        size = wanted.square().flatten(1).sum(dim=1).clamp(min=1e-12)
        weighed = [(error * gradient.flatten(1)).sum(dim=1) for gradient in gradients[module.name]]
        return error.sum(dim=1) / size, torch.stack(weighed, dim=1)

    (own, weighed), (own_before, weighed_before) = noise(unit.with_pair(base, change.pair)), noise(base)
    return own - own_before, weighed - weighed_before
