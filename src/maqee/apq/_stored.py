"""Checking what was read from a file, key by key, before anything is built from it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from maqee.errors import MaqeeError

Value = TypeVar("Value")

# For `__pydantic_config__` of dataclasses that are stored: no key more and no infinities.
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

# Keys that plans and searches did not have at first, with what they meant without: not always today's default.
_MEANT: dict[str, dict[str, Any]] = {
    "budget": {"target_on": "calibration", "drop_from": "float"},
    "options": {"objective": "paper", "bsr_scale": "none"},
    "scales": {"bsr": 1.0},
    "expected": {"metric_error": None, "bops_error": None},
}


def with_what_was_meant(values: dict[str, Any]) -> dict[str, Any]:
    """The sections of a stored plan or search with keys filled in that are newer than the file."""
    sections = {name: values[name] for name in _MEANT if isinstance(values.get(name), dict)}
    return {**values, **{name: {**_MEANT[name], **section} for name, section in sections.items()}}


def without_what_was_meant(values: dict[str, Any]) -> dict[str, Any]:
    """What to store: newer keys only where they say something new, so that an old file stays the same text."""
    kept = dict(values)
    for name, meant in _MEANT.items():
        if isinstance(section := values.get(name), dict):
            kept[name] = {key: value for key, value in section.items() if key not in meant or value != meant[key]}
    return kept


def from_json(kind: type[Value], values: Any, source: Path | str) -> Value:
    """Build a frozen dataclass from JSON values; what does not fit is an error that names the file and the key."""
    try:
        value: Value = _adapter(cast(Any, kind)).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MaqeeError(f"{source}: {where}: {first['msg']}: restore the file.") from error
    except MaqeeError as error:
        raise MaqeeError(f"{source}: {error}") from error
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def check_format(values: Any, kind: str, version: int, source: Path | str) -> dict[str, Any]:
    """The keys of a file without its format and version, once these are what this maqee reads."""
    if not isinstance(values, dict) or values.get("format") != f"maqee-{kind}":
        raise MaqeeError(f"{source}: format: this is no maqee {kind}: give a file that maqee wrote as one.")
    if type(values.get("version")) is not int or values["version"] != version:
        raise MaqeeError(
            f"{source}: version: this maqee reads version {version} of a {kind}, the file has "
            f"{values.get('version')!r}: write it again with this maqee."
        )
    return with_what_was_meant({key: value for key, value in values.items() if key not in ("format", "version")})
