"""Packages whose names are loaded when they are first used."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from maqee.lazy import attach
from tests.helpers import run_python

PACKAGES = ("maqee", "maqee.apq", "maqee.apq.control")


def read_names(package: ModuleType) -> tuple[dict[str, str], dict[str, str]]:
    """For every name its module, as type checkers read it (`if TYPE_CHECKING`) and as it is loaded (`else`)."""
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text())
    [guarded] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for name in node.names:
            assert name.asname == name.name, f"{name.name} is not exported for type checkers"
            typed[name.name] = node.module
    [table] = [node for part in guarded.orelse for node in ast.walk(part) if isinstance(node, ast.Dict)]
    return typed, ast.literal_eval(table)


@pytest.mark.parametrize("name", PACKAGES)
def test_types_and_names_agree(name: str) -> None:
    package = importlib.import_module(name)
    typed, loaded = read_names(package)
    assert typed == loaded
    assert sorted(typed) == package.__all__
    assert set(typed) <= set(dir(package))


def test_unknown_names() -> None:
    load, _, names = attach("maqee.apq", {"Trace": "maqee.apq.trace"})
    assert names == ["Trace"]
    assert load("Trace").__name__ == "Trace"
    with pytest.raises(AttributeError, match=r"module 'maqee\.apq' has no attribute 'Tracee'"):
        load("Tracee")


def test_the_search_loads_no_torch() -> None:
    """Not when the package is imported, and not when any of its names is used."""
    run_python(
        "import sys\n"
        "import maqee.apq\n"
        "assert sorted(name for name in sys.modules if name.startswith('maqee')) == "
        "['maqee', 'maqee.apq', 'maqee.lazy'], sorted(sys.modules)\n"
        "assert 'numpy' not in sys.modules\n"
        "for name in maqee.apq.__all__: getattr(maqee.apq, name)\n"
        "import maqee.apq.control, maqee.apq.theory.diagnosis\n"
        "for name in maqee.apq.control.__all__: getattr(maqee.apq.control, name)\n"
        "assert 'torch' not in sys.modules\n"
    )
