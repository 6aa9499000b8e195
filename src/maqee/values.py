"""Results as plain values: what a `to_json` is made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """The same as JSON has it: dataclasses and mappings become dictionaries, tuples become lists.

    Example:
        >>> plain({"bits": (4, 3)})
        {'bits': [4, 3]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
