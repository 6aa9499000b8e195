"""What pydantic has to say about a user's values, in words that a user understands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from maqee.errors import suggest

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # of a model, of a dataclass
_MISSING = "missing"
_INPUT = "Input should"


def explain(error: ValidationError, kind: Any) -> str:
    """The first mistake as one sentence: the key, what was given, and what is allowed there.

    Args:
        error: what validation raised.
        kind: the dataclass or model that was validated; it knows the keys that an unknown one may be meant for.
    """
    first = error.errors()[0]
    location, message = first["loc"], first["msg"]
    if first["type"] in _UNKNOWN:
        *parents, name = location
        place = key_path(kind, parents)
        return f"{place}{': ' if place else ''}{unknown_key(str(name), known_keys(kind, parents))}"
    place = key_path(kind, location) or "the values"
    if first["type"] == _MISSING:
        return f"{place} is missing."
    message = message.partition(", unable")[0]
    if message.startswith(_INPUT):
        return f"{place}: {first['input']!r:.60} must{message.removeprefix(_INPUT)}."
    return f"{place}: {message[:1].lower()}{message[1:]}."


def unknown_key(name: str, known: Sequence[str]) -> str:
    """What to say about a key that does not exist, with the nearest ones that do.

    Example:
        >>> unknown_key("epoch", ["epochs", "lr"])
        "unknown key 'epoch': did you mean epochs?"
    """
    words = str(suggest(name, list(known), "key"))
    return words[0].lower() + words[1:]


def known_keys(kind: Any, location: Sequence[int | str]) -> list[str]:
    """The keys that may stand at a place below a dataclass or model."""
    return list(field_types(_descend(kind, location)[0]))


def key_path(kind: Any, location: Sequence[int | str]) -> str:
    """A place as a dotted key; what pydantic adds to tell members of a union apart is left out."""
    return ".".join(_descend(kind, location)[1])


def field_types(kind: Any) -> dict[str, Any]:
    """Names and types of the fields of a dataclass or model; none for any other type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return get_type_hints(kind) if is_dataclass(kind) else {}


def inner_type(annotation: Any) -> Any:
    """The dataclass or model inside an annotation such as `tuple[Stage, ...]` or `Stage | None`; None without one."""
    if field_types(annotation):
        return annotation
    found = (inner_type(argument) for argument in get_args(annotation))
    return next((kind for kind in found if kind is not None), None)


def _descend(kind: Any, location: Sequence[int | str]) -> tuple[Any, list[str]]:
    """The type at a place, and the keys on the way there."""
    place, keys = kind, []
    for part in location:
        types = field_types(place)
        if isinstance(part, int):
            keys.append(str(part))
        elif part in types:
            keys.append(part)
            place = inner_type(types[part])
    return place, keys
