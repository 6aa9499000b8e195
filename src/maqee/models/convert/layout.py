"""A layout says how one library names the tensors that our models hold, as templates that work both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from maqee.models.config import BackboneConfig

State = Mapping[str, Tensor]
Hints = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """Names of one library for one family.

    Attributes:
        name: shown in errors.
        marker: the layout applies when a key of the file, without its prefix, matches this template.
        prefixes: what may stand before every key (a wrapper module's name).
        names: (theirs, ours) templates; "*" stands for a number, and a template names a module (its weight and bias)
            or a single tensor. Several rows may share ours: libraries rename things over the years.
        ignored: templates of keys that we know and do not need.
        infer: builds the configuration from the renamed tensors and the hints of a config file.
    """

    name: str
    marker: str
    prefixes: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    infer: Callable[[State, Hints], BackboneConfig]

    def strip(self, key: str) -> str:
        """The key without its wrapper's name."""
        for prefix in self.prefixes:
            if key.startswith(prefix):
                return key.removeprefix(prefix)
        return key

    def matches(self, keys: Iterable[str]) -> bool:
        """Whether any key carries the marker."""
        return any(_fill(self.marker, "", self.strip(key)) is not None for key in keys)

    def ours(self, key: str) -> str | None:
        """Our name for a key of the file, or None for a key that the layout does not know."""
        bare = self.strip(key)
        for theirs, ours in self.names:
            if (name := _fill(theirs, ours, bare)) is not None:
                return name
        return None

    def is_ignored(self, key: str) -> bool:
        """Whether the key is known and of no use."""
        bare = self.strip(key)
        return any(_fill(template, "", bare) is not None for template in self.ignored)

    def theirs(self, name: str, keys: Iterable[str]) -> str:
        """The key that a missing tensor of ours should have had in this file; our own name if nobody can say."""
        stripped = [self.strip(key) for key in keys]
        answers = []
        for theirs, ours in self.names:
            if (key := _fill(ours, theirs, name)) is not None:
                in_use = any(_fill(theirs, "", other) is not None for other in stripped)
                answers.append((not in_use, key))
        return min(answers)[1] if answers else name


def _fill(pattern: str, result: str, key: str) -> str | None:
    """Match `key` against a template and write its numbers and its ".weight"/".bias" ending into another."""
    expression = re.escape(pattern).replace(r"\*", r"(\d+)")
    match = re.fullmatch(expression + r"(?P<ending>\.weight|\.bias)?", key)
    if match is None:
        return None
    numbers = iter(match.groups())
    filled = re.sub(r"\*", lambda _: str(next(numbers)), result)
    return filled + (match["ending"] or "")
