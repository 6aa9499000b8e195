"""`import maqee`: every name is there, light to import, typed, and no command can do what no function can."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

import maqee
from maqee.cli import app
from tests.helpers import run_python

NAMES: list[str] = maqee.__all__  # type: ignore[attr-defined]  # made when the package is first used
PROMISED = (
    "load_backbone", "add_exits", "train", "quantize", "compress", "evaluate", "search", "diagnose", "baselines",
    "load", "predict", "Budget", "CompressOptions", "SearchOptions", "Policy", "Plan", "Trace", "EarlyExitModel",
    "MaqeeError",
)  # fmt: skip

# The function that does what a command does.
COMMANDS = {
    "baselines": "baselines",
    "bench confidence": "rank_confidences",
    "bench decisions": "bench_decisions",
    "bench engines": "bench_engines",
    "bench exits": "bench_exits",
    "bench gradients": "bench_gradients",
    "bench integers": "bench_integers",
    "bench kernels": "bench_kernels",
    "bench neighbour": "bench_neighbour",
    "bench plans": "bench_plans",
    "bench quantize": "bench_quantize",
    "bench recovery": "bench_recovery",
    "bench search": "bench_search",
    "bench signals": "bench_signals",
    "bench stream": "bench_stream",
    "compress": "compress",
    "cost": "cost",
    "demo": "demo",
    "diagnose": "diagnose",
    "envelope": "envelope",
    "eval": "evaluate",
    "export": "export",
    "ls": "list_names",
    "predict": "predict",
    "profile": "profile",
    "quantize": "compare_methods",
    "report": "write_report",
    "search": "search",
    "show": "show",
    "table": "table",
    "exits": "train_exits",
    "train": "train",
    "what": "what",
}


def commands() -> list[str]:
    root = typer.main.get_command(app)
    found = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [f"{name} {verb}" for verb in inner] if inner else [name]
    return sorted(found)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(maqee, name)
    assert not isinstance(thing, types.ModuleType)
    assert thing.__name__ == name
    assert len(inspect.getdoc(thing) or "") > 20


def test_what_was_promised_is_there() -> None:
    assert set(PROMISED) <= set(NAMES)
    assert set(NAMES) <= set(dir(maqee))
    with pytest.raises(AttributeError, match="no attribute 'compres'"):
        _ = maqee.compres  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(maqee.__file__).read_text())
    [branch] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.asname: node.module for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    table = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict))
    assert typed == ast.literal_eval(table)


def test_every_command_has_a_function() -> None:
    assert commands() == sorted(COMMANDS)
    assert set(COMMANDS.values()) <= set(NAMES)


@pytest.mark.parametrize("name", sorted(set(COMMANDS.values())))
def test_functions_are_typed_and_explain_their_arguments(name: str) -> None:
    function = getattr(maqee, name)
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters
    assert set(hints) == {*parameters, "return"}
    text = inspect.getdoc(function) or ""
    assert all(f"{parameter}:" in text for parameter in parameters), text


def hints_of_paths(thing: Any) -> Iterator[tuple[str, str]]:
    """Functions, with a type of each argument that is a path."""
    if inspect.isclass(thing) and thing.__module__.startswith("maqee."):
        for name, value in vars(thing).items():
            if not name.startswith("_"):
                yield from hints_of_paths(getattr(value, "__func__", value))
    elif inspect.isfunction(thing):
        hints = thing.__annotations__.items()
        yield from ((thing.__qualname__, hint) for name, hint in hints if name != "return" and "Path" in hint)


def test_paths_can_be_strings() -> None:
    found = [hint for name in NAMES for hint in hints_of_paths(getattr(maqee, name))]
    assert {("Plan.load", "str | Path"), ("EarlyExitModel.save", "str | Path")} <= set(found)
    assert [(name, hint) for name, hint in found if "str" not in hint] == []


def test_a_path_that_is_a_string_is_written_and_read(tmp_path: Path) -> None:
    folder = str(tmp_path / "model")
    model = maqee.add_exits(maqee.load_backbone("test-vit"), "mlp", [1])
    model.save(folder)
    assert maqee.EarlyExitModel.load(folder).positions == model.positions


@pytest.mark.parametrize("name", sorted(set(COMMANDS.values())))
def test_results_are_frozen_values_that_become_json(name: str) -> None:
    result = get_type_hints(getattr(maqee, name))["return"]
    kinds: tuple[Any, ...] = getattr(result, "__args__", (result,))
    for kind in kinds:
        assert dataclasses.is_dataclass(kind), kind
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[union-attr]
        assert callable(kind.to_json), kind  # type: ignore[union-attr]


def test_importing_costs_nothing() -> None:
    run_python(
        "import sys, maqee\n"
        "heavy = [m for m in ('torch', 'numpy', 'scipy', 'pydantic', 'matplotlib', 'typer') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "maqee.MaqeeError, maqee.Policy, dir(maqee)\n"
        "assert 'torch' not in sys.modules\n"
    )


def test_plans_and_budgets_need_no_torch() -> None:
    run_python("import sys, maqee\nmaqee.Budget(max_drop=0.01), maqee.SearchOptions(), maqee.Plan, maqee.Trace\n"
               "assert 'torch' not in sys.modules\n")  # fmt: skip


def walk(value: Any) -> Any:
    """Every value inside JSON."""
    if isinstance(value, dict):
        assert all(isinstance(key, str) for key in value)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from walk(item)
    else:
        yield value


@pytest.mark.parametrize(
    "result", [lambda: maqee.cost("test-vit", exits="mlp"), lambda: maqee.what("test-vit"), maqee.list_names]
)
def test_json_is_plain(result: Any) -> None:
    assert all(value is None or isinstance(value, str | int | float) for value in walk(result().to_json()))
