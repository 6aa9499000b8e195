"""What config.json of a saved quantized model says: every value checked before anything is built from it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from torch import nn

from maqee.errors import MaqeeError
from maqee.models.backbone import VERSION as BACKBONE_VERSION
from maqee.models.load import backbone_from_json
from maqee.quant.settings import QuantSettings

FORMAT, VERSION = "maqee-quantized", 1
Width = Annotated[int, Field(ge=2, le=8)]
ZeroType = Literal["uint8", "int16", "int32"]
_SETTINGS = TypeAdapter(QuantSettings)
# What files mean that are older than pairs of widths, and than common steps.
_BEFORE = {"act_widths": [], "switched": ["block"], "common_steps": False}


class _Strict(BaseModel):
    """No value is converted, no key is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class GridSpec(_Strict):
    """A grid without its numbers.

    Attributes:
        kind: as `GridModule.kind`.
        bits: width of a code.
        channels: how many channels have a scale of their own; None is one for all.
        zero: of a uniform grid, whether the zero point is an integer; RepQ's original mean is not.
        signed: of a twin grid.
    """

    kind: Literal["uniform", "log-sqrt2", "twin"]
    bits: Width
    channels: Annotated[int, Field(ge=1)] | None = None
    zero: Literal["integer", "real"] | None = None
    signed: bool | None = None

    @model_validator(mode="after")
    def _complete(self) -> GridSpec:
        if (self.zero is not None) != (self.kind == "uniform"):
            raise ValueError("a uniform grid, and no other, has a zero point")
        if (self.signed is not None) != (self.kind == "twin"):
            raise ValueError("a twin grid, and no other, is signed or not")
        return self


class WeightSpec(_Strict):
    """Quantized weights without their numbers: width, groups of columns, and how zero points are stored."""

    bits: Width
    groups: Annotated[int, Field(ge=1, le=256)]
    zero: ZeroType


class LayerSpec(_Strict):
    """A quantized layer; `weights` or `input` is None where it is float."""

    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**31)]], Field(min_length=2, max_length=4)]
    weights: WeightSpec | None
    bias: bool
    input: GridSpec | None


class ExitSpec(_Strict):
    """An exit, as an early-exit model saves it."""

    block: int
    head: str


class Spec(_Strict):
    """The whole file; `sha256` is of model.safetensors, so that the two always belong together."""

    format: str
    version: int
    backbone: dict[str, Any]
    preprocessing: dict[str, Any]
    exits: list[ExitSpec] | None
    final: str | None
    classes: list[str] = []
    method: str
    settings: dict[str, Any]
    layers: dict[str, LayerSpec]
    attention: dict[str, dict[str, GridSpec]]
    sha256: str

    @property
    def network(self) -> dict[str, Any]:
        """What describes the network alone, as the network's own `to_json` has it."""
        described = self.model_dump(include={"backbone", "preprocessing", "exits", "final", "classes"})
        return {**described, "version": BACKBONE_VERSION}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what does not apply to a grid is left out, and so are class names that nobody knows."""
        values = self.model_dump(exclude=None if self.classes else {"classes"})
        grids = [layer["input"] for layer in values["layers"].values() if layer["input"]]
        for grid in (*grids, *(grid for attend in values["attention"].values() for grid in attend.values())):
            for name in [name for name, value in grid.items() if value is None]:
                del grid[name]
        return values


def read_spec(values: dict[str, Any], source: str) -> Spec:
    """Check the values of config.json; `source` names the file in errors."""
    if values.get("format") != FORMAT:
        raise MaqeeError(f"{source}: format is {values.get('format')!r:.40}, not {FORMAT!r}: no quantized model.")
    if values.get("version") != VERSION:
        raise MaqeeError(f"{source}: version {values.get('version')!r:.40} is not {VERSION}, which this maqee reads.")
    try:
        return Spec.model_validate(values)
    except ValidationError as error:
        raise MaqeeError(_first(error, source)) from error


def settings_to_json(settings: QuantSettings) -> dict[str, Any]:
    """Plain JSON values."""
    return dataclasses.asdict(settings)


def settings_from_json(values: dict[str, Any], source: str) -> QuantSettings:
    """The reverse of `settings_to_json`."""
    known = {field.name for field in dataclasses.fields(QuantSettings)}
    values = dict(_BEFORE) | values
    if wrong := sorted(known ^ set(values)):
        raise MaqeeError(f"{source}: key 'settings.{wrong[0]:.40}' is missing or unknown.")
    try:
        return _SETTINGS.validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise MaqeeError(_first(error, source, "settings")) from error
    except MaqeeError as error:
        raise MaqeeError(f"{source}: key 'settings': {error}") from error
    except (re.error, OverflowError, RecursionError) as error:
        raise MaqeeError(f"{source}: key 'settings.overrides' holds no regular expression ({error}).") from error


def network_to_json(model: nn.Module) -> dict[str, Any]:
    """What, with the weights, makes the network again."""
    describe = getattr(model, "to_json", None)
    if describe is None:
        raise MaqeeError(f"A {type(model).__name__} cannot be saved: quantize a backbone or an early-exit model.")
    stored = {"exits": None, "final": None, **describe(), "format": FORMAT, "version": VERSION}
    return dict(json.loads(json.dumps(stored)))  # lists in place of tuples, as they will be read


def plain_network(values: Mapping[str, Any], source: str) -> nn.Module:
    """A backbone of the stored shape with fresh weights; what builds models with exits is given by who knows them."""
    if values["exits"] is not None:
        raise MaqeeError(f"{source}: key 'exits': the model has exits: load it with maqee.load.")
    return backbone_from_json(dict(values), source)


def _first(error: ValidationError, source: str, *inside: str) -> str:
    """The first complaint as one sentence, with the key as a path."""
    first = error.errors()[0]
    path = ".".join([*inside, *map(str, first["loc"])])
    words = "unknown to this maqee" if first["type"] == "extra_forbidden" else first["msg"].lower()
    return f"{source}: key {path!r:.120}: {words}."
