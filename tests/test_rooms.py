"""The house stands: folders are layers, no import goes backwards or round, and light doors stay light."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.helpers import run_python

SOURCE = Path(__file__).parents[1] / "src" / "maqee"
LAYERS = (
    "root", "apq", "models", "tasks", "data", "exits", "quant", "runtime", "evaluation", "training", "compression",
    "tables", "report", "bench", "cli",
)  # fmt: skip
# What a folder must not know although it lies below: the last column of the design's table.
FORBIDDEN = {
    "models": {"apq", "tasks"},
    "tasks": {"apq", "models"},
    "exits": {"apq"},
    "quant": {"apq", "exits", "tasks", "data"},
    "training": {"apq"},
    "report": {"models", "exits", "quant", "runtime", "training", "compression", "tables"},
}
# Runtime takes plans from apq, which are values, and nothing that searches; images from data, and no reader.
RUNTIME_MAY = {"maqee.apq.plan", "maqee.apq.trace"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("maqee", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (SOURCE / parts[1]).is_dir() else "root"


def imports(module: str, typed: bool) -> set[str]:
    """Every module that a module imports, also inside functions; with `typed`, what type checkers alone see, too."""
    tree = ast.parse(MODULES[module].read_text())
    only_types: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            only_types |= {inner for child in node.body for inner in ast.walk(child)}
    found = set()
    for node in ast.walk(tree):
        if node in only_types and not typed:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inner}
    return {name for name in found if name in MODULES and name != module}


def arrows() -> list[tuple[str, str]]:
    return [(module, other) for module in MODULES for other in sorted(imports(module, typed=True))]


def test_no_arrow_goes_up() -> None:
    wrong = []
    for module, other in arrows():
        here, there = room(module), room(other)
        if module in ("maqee", "maqee.__main__") or here == there:  # the front doors lead everywhere
            continue
        if LAYERS.index(there) > LAYERS.index(here) or there in FORBIDDEN.get(here, set()):
            wrong.append(f"{module} -> {other}")
        if here == "runtime" and (
            (there == "apq" and other not in RUNTIME_MAY) or other.startswith("maqee.data.readers")
        ):
            wrong.append(f"{module} -> {other}")
    assert wrong == []


def test_every_folder_is_a_layer() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(LAYERS) - {"root"}


def test_no_folder_has_the_name_of_a_public_function() -> None:
    import maqee

    folders = {path.name for path in SOURCE.iterdir()} | {path.stem for path in SOURCE.glob("*.py")}
    assert folders & set(dir(maqee)) & set(vars(maqee)["__all__"]) == set()


def test_no_import_goes_round() -> None:
    graph = {module: imports(module, typed=False) for module in MODULES}
    done: set[str] = set()

    def walk(module: str, road: tuple[str, ...]) -> None:
        assert module not in road, " -> ".join((*road[road.index(module) :], module))
        if module in done:
            return
        for other in sorted(graph[module]):
            walk(other, (*road, module))
        done.add(module)

    for module in MODULES:
        walk(module, ())


def test_module_names_occur_once() -> None:
    """Two files of one name are two things that a reader mixes up; folders may share names of their own kind."""
    # A task, its head and its readout are about the same thing, and so are a backbone and its converter.
    shared = {"__init__", "detection", "vit", "swin"}
    seen: dict[str, str] = {}
    for module, path in MODULES.items():
        if room(module) in ("cli", "root") or path.stem in shared:
            continue
        assert path.stem not in seen, f"{module} and {seen[path.stem]}"
        seen[path.stem] = module


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import maqee", ["torch", "numpy", "transformers"]),
        ("import maqee.apq; [getattr(maqee.apq, name) for name in maqee.apq.__all__]", ["torch"]),
        ("import maqee.cli", ["torch", "transformers", "matplotlib"]),
        ("import maqee.runs", ["torch"]),
        ("import maqee.runtime", ["maqee.training", "maqee.compression", "maqee.evaluation", "maqee.data.readers",
                                  "maqee.apq.loop", "maqee.apq.thresholds", "maqee.report", "transformers", "triton"]),
    ],
    ids=["maqee", "apq", "cli", "runs", "runtime"],
)  # fmt: skip
def test_light_doors(code: str, unwanted: list[str]) -> None:
    run_python(
        f"import sys\n{code}\n"
        f"loaded = [name for name in {unwanted!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
