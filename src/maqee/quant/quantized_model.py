"""A model with quantized layers in it, and the handles to turn them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models import ViT, fold_layer_scale
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.quant.places import Place, find_places
from maqee.quant.settings import FLOAT, Bits, QuantSettings

OnLayer = Callable[[QuantLayer, Tensor], None]
OnOperand = Callable[[QuantAttend, str, Tensor], None]


class Row(NamedTuple):
    """One line of the table "what is quantized"."""

    layer: str
    role: str
    grid: str
    asked: str
    got: str


class QuantizedModel:
    """A copy of a model whose layers are quantized where the settings say so.

    Attributes:
        model: the network; call it as before.
        method: name of the method that fitted it.
        settings: what was asked.
        places: every layer that could be quantized.
        layers: the quantized layers by name.
        attends: the quantized attention products by name.
    """

    def __init__(self, model: nn.Module, method: str, settings: QuantSettings) -> None:
        self.model = copy.deepcopy(model).eval()
        for module in self.model.modules():
            if isinstance(module, ViT) and module.config.layer_scale:
                fold_layer_scale(module)
        self.method = method
        self.settings = settings
        self.places = {place.name: place for place in find_places(self.model)}
        self._check_overrides()
        self.layers: dict[str, QuantLayer] = {}
        self.attends: dict[str, QuantAttend] = {}
        for place in self.places.values():
            self._replace(place)

    def _check_overrides(self) -> None:
        for pattern, _ in self.settings.overrides:
            if not any(re.search(pattern, name) for name in self.places):
                raise MaqeeError(f"Override {pattern!r} matches no layer: `maqee what MODEL` lists their names.")

    def _replace(self, place: Place) -> None:
        asked = self.settings.asked(place)
        if asked == FLOAT or (place.attention and asked.activations is None):
            return
        parent_name, _, child = place.name.rpartition(".")
        parent = self.model.get_submodule(parent_name)
        if place.attention:
            self.attends[place.name] = QuantAttend(place.name)
            setattr(parent, child, self.attends[place.name])
        else:
            inner = getattr(parent, child)
            self.layers[place.name] = QuantLayer(inner, place.name)
            setattr(parent, child, self.layers[place.name])

    def asked(self, name: str) -> Bits:
        """Bits that were asked for a layer or attention product."""
        return self.settings.asked(self.places[name])

    def widths(self, name: str) -> tuple[int, ...]:
        """Weight bits a layer is fitted for: all widths inside blocks, the one asked elsewhere."""
        place, bits = self.places[name], self.asked(name).weights
        if bits is None:
            return ()
        if place.role == "block" and not self.settings.overridden(place):
            return self.settings.all_widths
        return (bits,)

    def norm_before(self, name: str) -> nn.LayerNorm | None:
        """The norm that feeds a layer and nothing else."""
        norm = self.places[name].norm
        return self.model.get_submodule(norm) if norm else None  # type: ignore[return-value]

    # --- bits --------------------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return max(place.block for place in self.places.values())

    def block_layers(self, block: int) -> list[QuantLayer]:
        """Layers of a block whose width can be changed."""
        if not 1 <= block <= self.depth:
            raise MaqeeError(f"There is no block {block}: blocks go from 1 to {self.depth}.")
        places = [self.places[name] for name in self.layers]
        return [self.layers[p.name] for p in places if p.block == block and not self.settings.overridden(p)]

    def set_bits(self, block: int, bits: int) -> None:
        """Switch a block's weights to another width that was fitted: a look-up, nothing else is touched."""
        for layer in self._check_fitted(block, bits):  # all or none
            layer.set_bits(bits)

    def set_block_bits(self, bits: Sequence[int]) -> None:
        """Switch all blocks."""
        if len(bits) != self.depth:
            raise MaqeeError(f"There are {len(bits)} bit-widths for {self.depth} blocks: give {self.depth}.")
        for block, width in enumerate(bits, start=1):  # all or none
            self._check_fitted(block, width)
        for block, width in enumerate(bits, start=1):
            self.set_bits(block, width)

    def _check_fitted(self, block: int, bits: int) -> list[QuantLayer]:
        """The layers of a block, if all of them have weights at this width."""
        layers = self.block_layers(block)
        for layer in layers:
            layer.check_fitted(bits)
        return layers

    @property
    def block_bits(self) -> tuple[int, ...]:
        """Weight bits of every block."""
        widths = []
        for block in range(1, self.depth + 1):
            found = {layer.bits for layer in self.block_layers(block)}
            if len(found) != 1 or None in found:
                raise MaqeeError(f"Block {block} has no single width: its layers have {sorted(map(str, found))} bits.")
            widths.append(next(width for width in found if width is not None))
        return tuple(widths)

    def table(self) -> list[Row]:
        """Every layer that could be quantized: with which grid, which bits were asked, and which it got."""
        return [self._row(place) for place in self.places.values()]

    def _row(self, place: Place) -> Row:
        asked = self.settings.asked(place)
        if place.name in self.attends:
            grids = self.attends[place.name].all_grids()
            kinds = ", ".join(f"{name} {grid.kind}" for name, grid in grids.items())
            widths = sorted({str(grid.bits) for grid in grids.values()})
            if len(grids) < len(QuantAttend.OPERANDS):
                widths.append("float")
            shown = "/".join(f"{bits}x{bits}" if bits != "float" else bits for bits in widths)
            wanted = f"{asked.activations}x{asked.activations}"
            return Row(place.name, place.role, kinds or "float", wanted, shown)
        if place.name not in self.layers:
            return Row(place.name, place.role, "float", "float" if place.attention else str(asked), "float")
        layer = self.layers[place.name]
        state = layer.state()
        weights = "float" if state is None else "per channel" + (", two groups" if state.group is not None else "")
        inputs = "float" if layer.input is None else layer.input.kind
        got_bits = Bits(layer.bits, layer.input.bits if layer.input is not None else None)
        wanted_bits = asked
        if place.role == "block" and layer.bits in self.widths(place.name):
            wanted_bits = Bits(layer.bits, asked.activations)  # blocks are switched on purpose
        return Row(place.name, place.role, f"weights {weights}; input {inputs}", str(wanted_bits), str(got_bits))

    def check_applied(self) -> None:
        """Complain if a layer did not get the bits that were asked."""
        for row in self.table():
            if row.asked != row.got:
                raise MaqeeError(
                    f"{row.layer} was to get {row.asked} bits and got {row.got}: {self.method} cannot do that."
                )
        for name, layer in self.layers.items():
            if missing := [bits for bits in self.widths(name) if str(bits) not in layer.states]:
                raise MaqeeError(f"{name} was to be fitted at {missing[0]} bits as well: {self.method} cannot do that.")

    # --- running -----------------------------------------------------------------------------------------------------

    def run_everything(self, images: Tensor) -> Any:
        """One pass through every layer, exit heads included."""
        forward = getattr(self.model, "forward_all", self.model)
        with torch.no_grad():
            return forward(images)

    @contextmanager
    def observing(self, on_layer: OnLayer | None, on_operand: OnOperand | None) -> Iterator[None]:
        """Let functions see the input of every layer and operand as it arrives."""
        try:
            for layer in self.layers.values():
                layer.observer = on_layer
            for attend in self.attends.values():
                attend.observer = on_operand
            yield
        finally:
            for layer in self.layers.values():
                layer.observer = None
            for attend in self.attends.values():
                attend.observer = None

    @contextmanager
    def in_float(self) -> Iterator[None]:
        """Compute without quantization for a while."""
        modules: list[QuantLayer | QuantAttend] = [*self.layers.values(), *self.attends.values()]
        before = [module.enabled for module in modules]
        try:
            for module in modules:
                module.enabled = False
            yield
        finally:
            for module, enabled in zip(modules, before, strict=True):
                module.enabled = enabled
