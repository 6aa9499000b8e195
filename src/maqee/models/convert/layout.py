"""A layout says how one library names the tensors that our models hold, as templates that work both ways."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from maqee.models.config import BackboneConfig
from maqee.models.convert.hints import Hints

State = Mapping[str, Tensor]


@dataclass
class Renamed:
    """Tensors by our names while they are being converted.

    Attributes:
        state: the tensors.
        origin: what the file calls each.
    """

    state: dict[str, Tensor]
    origin: dict[str, str]

    def move(self, name: str, new: str) -> None:
        """Give a tensor another name."""
        self.state[new] = self.state.pop(name)
        self.origin[new] = self.origin.pop(name)


class MisfitError(Exception):
    """One of our tensors is missing or wrong; whoever knows the file turns this into its words.

    Args:
        name: our name of the tensor.
        problem: continues "key ...".
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name = name
        self.problem = problem


@dataclass(frozen=True)
class Layout:
    """Names of one library for one family.

    Attributes:
        name: shown in errors.
        markers: the layout applies when a key of the file, without its prefix, matches one of these templates.
        prefixes: what may stand before every key (a wrapper module's name).
        names: (theirs, ours) templates; "*" stands for a number, and a template names a module (its weight and bias)
            or a single tensor. Several rows may share ours: libraries rename things over the years.
        ignored: templates of keys that we know and do not need.
        infer: builds the configuration from the renamed tensors and the hints of a config file.
        foreign: what the keys of known variants begin with that we do not have, and what to call each in errors.
        complete: brings the renamed tensors into our form where the library keeps the same network in another one.
    """

    name: str
    markers: tuple[str, ...]
    prefixes: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    infer: Callable[[State, Hints], BackboneConfig]
    foreign: tuple[tuple[str, str], ...] = ()
    complete: Callable[[Renamed, BackboneConfig], None] | None = None

    def strip(self, key: str) -> str:
        """The key without the names of what wraps the model: torch.compile, DataParallel, a head's module."""
        outer = len(_outer(key))
        for prefix in self.prefixes:
            if key.startswith(prefix, outer):
                return key[outer + len(prefix) :]
        return key[outer:]

    def matches(self, keys: Iterable[str]) -> bool:
        """Whether any key carries a marker."""
        return any(_fill(marker, "", self.strip(key)) is not None for key in keys for marker in self.markers)

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

    def meaning(self, key: str) -> str:
        """What to call a key that we know and do not support; empty for one that nobody knows."""
        bare = self.strip(key)
        return next((words for start, words in self.foreign if _beginning(start).match(bare)), "")

    def theirs(self, name: str, keys: Iterable[str]) -> str:
        """The key that a missing tensor of ours should have had in this file; our own name if nobody can say.

        Where the library keeps query, key and value apart, a missing fused layer is reported as its query.
        """
        keys = tuple(keys)
        stripped = [self.strip(key) for key in keys]
        answers = []
        for theirs, ours in self.names:
            for spelling in (name, name.replace(".attn.qkv.", ".attn.q.")):
                if (key := _fill(ours, theirs, spelling)) is not None:
                    in_use = any(_fill(theirs, "", other) is not None for other in stripped)
                    answers.append((not in_use, key))
        return self._wrapper(name, keys) + min(answers)[1] if answers else name

    def _wrapper(self, name: str, keys: Iterable[str]) -> str:
        """The prefix this file uses; transformers leaves the classifier outside of what it wraps."""
        used = next((key.removesuffix(self.strip(key)) for key in keys if self.strip(key) != key), "")
        return _outer(used) if name.startswith("head.") else used


def count(state: State, template: str, first: str) -> int:
    """How many modules there are in a numbered list; a hole in the numbers is a missing module.

    Args:
        state: tensors by our names.
        template: what the names of the list begin with, with "*" for the number.
        first: the tensor in a module that is reported when the module is missing.
    """
    pattern = _beginning(template)
    numbers = {match[1] for name in state if (match := pattern.match(name))}
    length = next(number for number in itertools.count() if str(number) not in numbers)
    if not length or length < len(numbers):
        raise MisfitError(template.replace("*", str(length)) + first, "is missing")
    return length


def _outer(key: str) -> str:
    """The wrappers that torch puts around a whole model."""
    match = re.match(r"((_orig_mod|module)\.)*", key)
    return match[0] if match else ""


@functools.cache
def _beginning(template: str) -> re.Pattern[str]:
    return re.compile(re.escape(template).replace(r"\*", r"(\d+)"))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", r"(\d+)") + r"(?P<ending>\.weight|\.bias)?")


def _fill(pattern: str, result: str, key: str) -> str | None:
    """Match `key` against a template and write its numbers and its ".weight"/".bias" ending into another."""
    match = _compiled(pattern).fullmatch(key)
    if match is None:
        return None
    numbers = iter(match.groups())
    filled = re.sub(r"\*", lambda _: str(next(numbers)), result)
    return filled + (match["ending"] or "")
