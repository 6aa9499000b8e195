"""A finished table, as `maqee table` wrote it: found by its JSON file or by the YAML file that it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maqee.errors import MaqeeError
from maqee.io import read_json
from maqee.yaml_files import read_yaml

YAML_ENDINGS = (".yaml", ".yml")
_KEYS = ("table", "rows", "missing", "environment")


@dataclass(frozen=True, kw_only=True)
class FinishedTable:
    """What a report about a table is made from.

    Attributes:
        path: the JSON file.
        values: its content.
        settings: the text of the YAML file, where the table was named by it.
    """

    path: Path
    values: dict[str, Any] = field(repr=False)
    settings: str = field(default="", repr=False)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """In the order of the table."""
        return list(self.values["rows"])

    @property
    def metric(self) -> str:
        """What the column of accuracies is called."""
        return str(self.values.get("metric", "accuracy"))


def json_of(name: str) -> Path:
    """Where `maqee table` writes a table of that name, unless it is told otherwise."""
    return Path("results", "tables", f"{name}.json")


def read_finished(path: Path) -> FinishedTable:
    """A table by its JSON file, or by its YAML file if its runs have been done; anything else is the user's error."""
    settings = ""
    if path.suffix in YAML_ENDINGS:
        name = read_yaml(path, "the YAML file of a table (see the folder tables/)").get("name")
        found = json_of(str(name))
        if not found.is_file():
            raise MaqeeError(f"{path}: its table {found} does not exist: run maqee table {path}, or give a JSON file.")
        path, settings = found, path.read_text(encoding="utf-8")
    values = read_json(path)
    if any(key not in values for key in _KEYS):
        raise MaqeeError(f"{path} is no table: give a JSON file written by maqee table, or a folder of maqee compress.")
    if not values["rows"]:
        raise MaqeeError(f"{path} has no rows: let maqee table do some runs first.")
    return FinishedTable(path=path, values=values, settings=settings)
