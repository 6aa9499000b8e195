"""One small registry class; every kind of plug-in (backbone preset, exit head, task, data reader) has one instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from maqee.errors import suggest

T = TypeVar("T")


class Registry(Generic[T]):
    """Names mapped to things of one kind.

    Example:
        >>> heads: Registry[type] = Registry("exit head")
        >>> @heads.register("mlp")
        ... class MlpHead: ...
        >>> heads["mlp"] is MlpHead
        True
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files the decorated object under `name`; a name can be taken only once."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise suggest(name, list(self._entries), self.kind)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._entries)
