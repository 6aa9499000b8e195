"""A model with quantized layers in it, and the handles to turn them."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
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
from maqee.widths import FULL, LAYERS, BitPair, BitSettings, BlockWidths

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
        self.fitting: int | None = None  # activation width that a method is fitting
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
            self.attends[place.name] = QuantAttend(place.name, asked.activations)
            setattr(parent, child, self.attends[place.name])
        else:
            layer = QuantLayer(getattr(parent, child), place.name, asked.activations)
            if place.norm:
                layer.norm = (self.model.get_submodule(place.norm),)  # type: ignore[assignment]
            self.layers[place.name] = layer
            setattr(parent, child, layer)

    def asked(self, name: str) -> Bits:
        """Bits that were asked for a layer or attention product; while fitting, those it is fitted at."""
        asked = self.settings.asked(self.places[name])
        return Bits(asked.weights, self.fitting) if self.fitting and self.switches(name) else asked

    def switches(self, name: str) -> bool:
        """Whether the widths of a layer can be changed afterwards."""
        return self.settings.switches(self.places[name])

    def begin_width(self, bits: int) -> None:
        """Make room for what is fitted next, with this activation width in everything that can be switched."""
        self.fitting = bits
        for module in self._modules():
            module.begin_width(self.asked(module.name).activations)

    def widths(self, name: str) -> tuple[int, ...]:
        """Weight bits a layer is fitted for: all widths where they can be switched, the one asked elsewhere."""
        bits = self.settings.asked(self.places[name]).weights
        if bits is None:
            return ()
        return self.settings.all_widths if self.switches(name) else (bits,)

    def act_widths(self, name: str) -> tuple[int | None, ...]:
        """Activation bits a layer or attention product is fitted for."""
        if self.switches(name):
            return self.settings.all_act_widths
        return (self.settings.asked(self.places[name]).activations,)

    def norm_before(self, name: str) -> nn.LayerNorm | None:
        """The norm that feeds a layer and nothing else."""
        norm = self.places[name].norm
        return self.model.get_submodule(norm) if norm else None  # type: ignore[return-value]

    # --- bits --------------------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return max(place.block for place in self.places.values())

    def block_modules(self, block: int) -> list[QuantLayer | QuantAttend]:
        """Layers and attention products of a block whose widths can be changed."""
        if not 1 <= block <= self.depth:
            raise MaqeeError(f"There is no block {block}: blocks go from 1 to {self.depth}.")
        found = (module for module in self._modules() if self.places[module.name].block == block)
        return [module for module in found if self.switches(module.name)]

    def set_bits(self, block: int, weights: int, activations: int | None = None) -> None:
        """Switch a block to other widths that were fitted: a look-up, nothing else is touched.

        Args:
            block: counted from 1.
            weights: bits of the weights of its layers.
            activations: bits of their inputs and of the operands of attention; as they are when left out.
        """
        modules = self.block_modules(block)
        self._switch([(module, (weights, activations or _input_bits(module) or 0)) for module in modules])

    def set_widths(self, widths: BitSettings) -> None:
        """Switch everything that can be switched; what cannot keeps its widths."""
        if widths.depth != self.depth:
            raise MaqeeError(f"There are widths for {widths.depth} blocks, and the model has {self.depth}.")
        switched = (module for module in self._modules() if self.switches(module.name))
        self._switch([(module, planned_pair(widths, self.places[module.name])) for module in switched])

    def settle(self) -> None:
        """Keep nothing but the widths in use: what follows, training or a file, needs no others."""
        for module in self._modules():
            module.settle()

    def _modules(self) -> list[QuantLayer | QuantAttend]:
        return [*self.layers.values(), *self.attends.values()]

    def _switch(self, wanted: list[tuple[QuantLayer | QuantAttend, BitPair]]) -> None:
        """All or none."""
        for module, (weights, activations) in wanted:
            if isinstance(module, QuantAttend):
                module.check_fitted(activations)
            else:
                module.check_fitted(weights, activations)
        for module, (weights, activations) in wanted:
            if isinstance(module, QuantAttend):
                module.switch(activations)
            else:
                module.switch(weights, activations)

    @property
    def bit_settings(self) -> BitSettings:
        """Widths in use, as the cost model and plans have them; float counts as 32 bits."""
        blocks = [dict.fromkeys(LAYERS, FULL) for _ in range(self.depth)]
        heads: dict[int, list[Place]] = {}
        usual = Bits(self.settings.weight_bits, self.settings.act_bits)
        parts: dict[str, BitPair] = {"patch": FULL, "classifier": FULL, "merge": _counted(usual)}
        for place in self.places.values():
            pair = self._pair_in_use(place)
            if place.role == "block":
                blocks[place.block - 1][place.layer] = pair
            elif place.role == "head":
                heads.setdefault(place.head, []).append(place)
            else:
                parts[place.role] = pair
        listed = tuple(self._head_pair(heads[index]) for index in sorted(heads))
        return BitSettings(
            blocks=tuple(BlockWidths(**block) for block in blocks),
            head=listed[0] if listed else _counted(self.settings.heads or usual),
            heads=listed if len(set(listed)) > 1 else (),
            **parts,
        )

    def _head_pair(self, places: list[Place]) -> BitPair:
        """Widths of an exit head: those of its first layer that nobody has fixed, if there is one."""
        return self._pair_in_use(min(places, key=lambda place: (self.settings.overridden(place), place.attention)))

    def _pair_in_use(self, place: Place) -> BitPair:
        if place.name in self.attends:
            bits = self.attends[place.name].bits or 32
            return bits, bits
        if place.name not in self.layers:
            return FULL
        layer = self.layers[place.name]
        return layer.bits or 32, layer.input_bits or 32

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
            bits = self.attends[place.name].bits
            wanted = f"{bits}x{bits}" if self.switches(place.name) else f"{asked.activations}x{asked.activations}"
            return Row(place.name, place.role, kinds or "float", wanted, shown)
        if place.name not in self.layers:
            return Row(place.name, place.role, "float", "float" if place.attention else str(asked), "float")
        layer = self.layers[place.name]
        state = layer.state()
        weights = "float" if state is None else "per channel" + (", two groups" if state.group is not None else "")
        inputs = "float" if layer.input is None else layer.input.kind
        got_bits = Bits(layer.bits, layer.input.bits if layer.input is not None else None)
        wanted_bits = asked
        if self.switches(place.name) and layer.bits in self.widths(place.name):
            wanted_bits = Bits(layer.bits, layer.input_bits)  # widths are switched on purpose
        return Row(place.name, place.role, f"weights {weights}; input {inputs}", str(wanted_bits), str(got_bits))

    def check_applied(self) -> None:
        """Complain if a layer did not get the bits that were asked."""
        for row in self.table():
            if row.asked != row.got:
                raise MaqeeError(
                    f"{row.layer} was to get {row.asked} bits and got {row.got}: {self.method} cannot do that."
                )
        for name, layer in self.layers.items():
            for bits, input_bits in itertools.product(self.widths(name), self.act_widths(name)):
                layer.check_fitted(bits, input_bits)
        for name, attend in self.attends.items():
            for input_bits in self.act_widths(name):
                attend.check_fitted(input_bits)

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
        modules = self._modules()
        before = [module.enabled for module in modules]
        try:
            for module in modules:
                module.enabled = False
            yield
        finally:
            for module, enabled in zip(modules, before, strict=True):
                module.enabled = enabled


def planned_pair(widths: BitSettings, place: Place) -> BitPair:
    """What settings say of a layer or attention product."""
    if place.role == "block":
        return widths.blocks[place.block - 1][LAYERS.index(place.layer)]
    if place.role == "head":
        return widths.heads[place.head] if widths.heads else widths.head
    return {"patch": widths.patch, "classifier": widths.classifier, "merge": widths.merge}[place.role]


def _input_bits(module: QuantLayer | QuantAttend) -> int | None:
    return module.bits if isinstance(module, QuantAttend) else module.input_bits


def _counted(bits: Bits) -> BitPair:
    """Widths for the cost model, where float is 32."""
    return bits.weights or 32, bits.activations or 32
