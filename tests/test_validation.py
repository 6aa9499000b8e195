"""What pydantic complains about, in plain words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from maqee.validation import explain, inner_type, key_path, known_keys
from maqee.values import plain


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int | tuple[int, int] | None = None
    share: float = Field(default=0.5, le=1)


@dataclass(frozen=True)
class Outer:
    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    kind: Literal["one", "two"] = "one"
    inner: Inner | None = None
    many: tuple[Inner, ...] = field(default=())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "name is missing."),
        ({"name": "x", "kidn": 1}, "unknown key 'kidn': did you mean kind?"),
        ({"name": "x", "inner": {"sharre": 1}}, "inner: unknown key 'sharre': did you mean share?"),
        ({"name": "x", "many": [{}, {"sice": 1}]}, "many.1: unknown key 'sice': did you mean size?"),
        ({"name": "x", "many": [{"zzz": 1}]}, "many.0: unknown key 'zzz': choose one of share, size."),
        ({"name": "x", "kind": "three"}, "kind: 'three' must be 'one' or 'two'."),
        ({"name": 1}, "name: 1 must be a valid string."),
        ({"name": "x", "inner": {"share": 2}}, "inner.share: 2 must be less than or equal to 1."),
        ({"name": "x", "inner": {"share": "many"}}, "inner.share: 'many' must be a valid number."),
        ({"name": "x", "inner": {"size": "big"}}, "inner.size: 'big' must be a valid integer."),
    ],
)
def test_mistakes(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Outer).validate_python(values)
    assert explain(error.value, Outer) == words


def test_long_values_are_cut() -> None:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Outer).validate_python({"name": ["x"] * 1000})
    assert len(explain(error.value, Outer)) < 120


def test_places() -> None:
    assert known_keys(Outer, ("many", 3)) == ["size", "share"]
    assert key_path(Outer, ("inner", "size", "tuple[int,int]", 0)) == "inner.size.0"
    assert inner_type(tuple[Inner, ...]) is Inner
    assert inner_type(int | None) is None


def test_plain_values() -> None:
    outer = Outer("x", many=())
    assert plain({"a": (1, [2, outer])}) == {"a": [1, [2, {"name": "x", "kind": "one", "inner": None, "many": []}]]}
