"""Reading YAML that people write: recipes and configurations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from maqee.errors import MaqeeError


class _Loader(yaml.SafeLoader):
    """Plain values alone. 3e10 is a number, as in YAML 1.2; PyYAML follows 1.1, which wants 3.0e+10."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _parse(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """The keys and values of a file; anything else is the user's error, named.

    Args:
        path: the file.
        what: what the file should be, for the message about a missing one.
    """
    if not path.is_file():
        raise MaqeeError(f"{path} does not exist: give {what}.")
    try:
        values = _parse(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MaqeeError(f"{path} is not valid YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(values, dict):
        raise MaqeeError(f"{path} must hold keys and values, not a {type(values).__name__}.")
    return values


def split_assignment(text: str, example: str) -> tuple[str, Any]:
    """Read "key=value", the value in YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise MaqeeError(f"{text!r} is no key=value: write, for example, {example}.")
    try:
        return key.strip(), _parse(value)
    except yaml.YAMLError as error:
        raise MaqeeError(f"{text!r}: the value is not valid YAML ({' '.join(str(error).split())}).") from error
