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


def check_format(values: Any, kind: str, version: int, source: Path | str, oldest: int = 0) -> dict[str, Any]:
    """The keys of a file without its format and version, once these are what this maqee reads.

    Args:
        values: what the file holds.
        kind: "plan", "trace" or "search".
        version: the one that is written now.
        source: the file, for errors.
        oldest: the first version that can still be read; the present one when left out.
    """
    oldest = oldest or version
    if not isinstance(values, dict) or values.get("format") != f"maqee-{kind}":
        raise MaqeeError(f"{source}: format: this is no maqee {kind}: give a file that maqee wrote as one.")
    if type(values.get("version")) is not int or not oldest <= values["version"] <= version:
        remedy = "start the search again" if kind == "search" else "write it again with this maqee"
        raise MaqeeError(
            f"{source}: version: this maqee reads version {version} of a {kind}, the file has "
            f"{values.get('version')!r}: {remedy}."
        )
    return {key: value for key, value in values.items() if key not in ("format", "version")}
