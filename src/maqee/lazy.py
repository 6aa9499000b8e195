"""Public names of a package that are loaded when they are first used, so that importing the package costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for the `__init__` of a package.

    Type checkers read the same names from ordinary imports; they must not see `__getattr__`, or every misspelt name
    would pass::

        if TYPE_CHECKING:
            from maqee.apq.trace import Trace as Trace
        else:
            __getattr__, __dir__, __all__ = attach(__name__, {"Trace": "maqee.apq.trace"})

    Args:
        package: its `__name__`.
        homes: for every public name the module that defines it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names, sorted(homes)
