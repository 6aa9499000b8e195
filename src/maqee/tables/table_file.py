"""The file of a table: which rows, on which models, with how many seeds.

name: digits
backbone: vit-digits
models: {lgvit: runs/digits}
rows:
erq: {method: erq, exits: lgvit, bits: W4A4}
maqee: {method: maqee, exits: lgvit, bits: both}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from maqee.compression.compress_config import CompressConfig, read_compress_config
from maqee.errors import MaqeeError, suggest
from maqee.evaluation.protocols import STANDARD
from maqee.validation import explain
from maqee.yaml_files import read_yaml, split_assignment

UNIFORM = ("rtn", "repq", "erq", "mptq")
BEST = "best"  # as bits: the best uniform pair
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_PAIR = re.compile(r"[Ww][2-8][Aa][2-8]")

Share = Annotated[float, Field(ge=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Section):
    """One row: a method with bits and thresholds on one model, trained afterwards or not."""

    method: Literal["float", "rtn", "repq", "erq", "mptq", "maqee"]
    exits: str = Field(description="which of the table's models")
    bits: str | None = Field(default=None, description="W4A4; best, the best uniform pair; for maqee both or weights")
    quantizer: Literal["rtn", "repq", "erq", "mptq"] = Field(default="erq", description="for maqee: what fits grids")
    thresholds: Share | Literal["default", "shared", "searched", "none"] | None = Field(
        default=None, description="a number, or how they are chosen; none takes the exits off"
    )
    thresholds_of: str | None = Field(default=None, description="a row whose thresholds this one has")
    recovered: int = Field(default=0, ge=0, description="training steps afterwards")
    seeds: int | None = Field(default=None, ge=1)
    compress: dict[str, Any] = Field(default_factory=dict, description="what differs from the table's own")

    @property
    def chosen(self) -> float | str:
        """How thresholds are chosen: by the search for MAQEE, else the table's default, unless the row says it."""
        if self.thresholds_of is not None:
            return f"of {self.thresholds_of}"
        if self.thresholds is None:
            return "searched" if self.method == "maqee" else "default"
        return self.thresholds


class TableFile(_Section):
    """A table."""

    name: str
    backbone: str = Field(description="what the backbone is called in the table")
    models: dict[str, str] = Field(min_length=1, description="folders by the name of their exits; may hold {seed}")
    data: str | None = Field(default=None, description="data set, if the models do not say")
    task: str | None = None
    threshold: Share = Field(default=STANDARD, description="of every exit where nothing else is said")
    target: Share | str | None = Field(default=None, description="of controlled performance: a number or a row")
    seeds: int = Field(default=10, ge=1, description="of rows without training")
    recovered_seeds: int = Field(default=3, ge=1, description="of rows with training")
    compress: dict[str, Any] = Field(default_factory=dict, description="as in maqee compress --config")
    rows: dict[str, Row] = Field(min_length=1)

    def seeds_of(self, row: Row, given: int | None = None) -> range:
        """The random seeds of a row; a number that was given on the command line goes first."""
        usual = self.recovered_seeds if row.recovered else self.seeds
        return range(given or row.seeds or usual)

    @property
    def target_row(self) -> str | None:
        """The row whose quantized model sets the target at full depth: as in the paper, plain quantization."""
        if isinstance(self.target, str):
            return self.target
        if self.target is not None:
            return None
        plain = [name for name, row in self.rows.items() if row.method in UNIFORM and not row.recovered]
        first = [name for name in plain if self.rows[name].method == "erq" and self.rows[name].bits != BEST]
        return next(iter([*first, *plain]), None)

    def config(self, name: str, seed: int) -> CompressConfig:
        """Everything that decides a row's model, at one seed."""
        row = self.rows[name]
        values = _merged(self.compress, row.compress)
        said: dict[str, Any] = {
            "options.seed": seed,
            "options.task": self.task,
            "options.recovery_steps": row.recovered,
            "options.method": row.quantizer if row.method == "maqee" else None if row.method == "float" else row.method,
            "search.bits": row.bits if row.method == "maqee" else None,
        }
        if row.method in UNIFORM and row.bits is not None and row.bits != BEST:
            said |= {
                "options.quantization.weight_bits": int(row.bits[1]),
                "options.quantization.act_bits": int(row.bits[3]),
            }
        return read_compress_config(values=values | said)


def read_table(path: Path, assignments: Sequence[str] = ()) -> TableFile:
    """Read and check a table; assignments are "key=value" with dotted keys, values in YAML."""
    values = read_yaml(path, "the YAML file of a table (see the folder tables/)")
    for text in assignments:
        key, value = split_assignment(text, "models.lgvit=runs/cifar100-vit-tiny")
        place = values
        *parents, last = key.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise MaqeeError(f"{text!r}: {parent} is a value, it has no key {last!r}.")
        place[last] = value
    try:
        table = TableFile.model_validate(values)
    except ValidationError as error:
        raise MaqeeError(f"{path}: {explain(error, TableFile)}") from error
    _check_name(path, "name", table.name)
    for name, row in table.rows.items():
        _check_name(path, "rows", name)
        for problem in _problems(table, row):
            raise MaqeeError(f"{path}: rows.{name}.{problem}")
        try:
            table.config(name, 0)
        except MaqeeError as error:
            raise MaqeeError(f"{path}: rows.{name}.compress: {error}") from error
    if isinstance(table.target, str):
        if table.target not in table.rows:
            raise MaqeeError(f"{path}: target: {suggest(table.target, list(table.rows), 'row')}")
        if table.rows[table.target].method == "float":
            raise MaqeeError(f"{path}: target: {table.target} is not quantized: name a quantized row, or a number.")
    return table


def _problems(table: TableFile, row: Row) -> list[str]:
    """What is wrong with a row, beginning with the key."""
    found = []
    if row.exits not in table.models:
        found.append(f"exits: {suggest(row.exits, list(table.models), 'model')}")
    if row.method == "float" and (row.bits is not None or row.recovered):
        found.append("bits: full precision has no bits and no recovery: leave both out.")
    if row.method == "maqee" and row.bits not in ("both", "weights"):
        found.append(f"bits: {row.bits!r} must be both or weights: what MAQEE chooses.")
    if row.method in UNIFORM and not (row.bits is not None and (_PAIR.fullmatch(row.bits) or row.bits == BEST)):
        found.append(f"bits: {row.bits!r} must be uniform widths such as W4A4, or best.")
    if row.method == "mptq" and row.bits == BEST:
        found.append("bits: mptq chooses bits of its own: give their average, such as W4A4.")
    if row.thresholds is not None and row.thresholds_of is not None:
        found.append("thresholds and thresholds_of: give one of them.")
    if row.thresholds_of is not None and row.thresholds_of not in table.rows:
        found.append(f"thresholds_of: {suggest(row.thresholds_of, list(table.rows), 'row')}")
    elif row.thresholds_of is not None:
        other = table.rows[row.thresholds_of]
        if other.thresholds_of is not None or other.chosen == "none" or other.exits != row.exits:
            found.append(f"thresholds_of: {row.thresholds_of} has no thresholds of its own for these exits.")
    return found


def _check_name(path: Path, key: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise MaqeeError(f"{path}: {key}: {name!r} names files: use letters, numbers, dots, plus signs and dashes.")


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Values on top of others, section by section."""
    merged = dict(one)
    for key, value in other.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
