"""The map from the paper to the code is true: what it names exists, and what it calls a default is one."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from maqee.apq import Budget, SearchOptions
from maqee.compression.compress_config import read_compress_config
from maqee.compression.recovery_settings import usual_lr
from maqee.quant import QuantSettings
from maqee.training.exit_losses import TEMPERATURE

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "paper-map.md").read_text()
NAMES = sorted(set(re.findall(r"`(maqee(?:\.\w+)+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", TEXT)))


def find(name: str) -> Any:
    """A module, or what lies in one, by its dotted name."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("name", NAMES)
def test_functions_exist(name: str) -> None:
    assert find(name) is not None


@pytest.mark.parametrize("name", TESTS)
def test_tests_exist(name: str) -> None:
    file, function = name.split("::")
    tree = ast.parse((ROOT / file).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_it_names_enough() -> None:
    assert len(NAMES) > 60
    assert len(TESTS) > 60


def test_every_test_is_named_whole() -> None:
    """No name escapes the check by being written in another way."""
    assert set(re.findall(r"tests/[\w/]+\.py(?:::\w+)?", TEXT)) == {*TESTS, "tests/test_paper_map.py"}


def test_every_option_of_the_search_is_on_the_map() -> None:
    for field in fields(SearchOptions):
        assert re.search(rf"\b{field.name}\b", TEXT), field.name


def test_defaults_that_the_map_states() -> None:
    """`name=value` in the column of defaults, for options of the search and of budgets."""
    usual = SearchOptions()
    table = TEXT.split("## Every departure")[1]
    rows = [line.split("|") for line in table.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == 29
    stated = [pair for row in rows for pair in re.findall(r"`(\w+)=([^`]+)`", row[4])]
    known = {field.name for field in fields(SearchOptions)}
    checked = {name for name, value in stated if name in known and ast.literal_eval(value) == getattr(usual, name)}
    assert checked == {name for name, _ in stated if name in known}
    assert len(checked) > 25
    asked = {field.name: getattr(Budget(), field.name) for field in fields(Budget)}
    assert all(ast.literal_eval(value) == asked[name] for name, value in stated if name in asked)


def test_what_the_map_calls_the_papers_mode() -> None:
    """It is not the default: the map says in how many options they differ, and the command line means the same."""
    [written] = re.findall(r"^    (SearchOptions\(.*\)), (Budget\(.*\))$", TEXT, flags=re.MULTILINE)
    search, budget = (eval(text, {"SearchOptions": SearchOptions, "Budget": Budget}) for text in written)
    assert (search.bits, search.objective, search.candidates) == ("weights", "paper", "grid")
    names = [field.name for field in fields(SearchOptions)]
    differing = {name for name in names if getattr(search, name) != getattr(SearchOptions(), name)}
    assert differing == {"bits", "objective", "candidates"}
    [command] = re.findall(r"`maqee compress RUN --out OUT (.*?)`", TEXT)
    flags = dict(zip(command.split()[::2], command.split()[1::2], strict=True))
    values = {"search.bits": flags["--bits"], "search.objective": flags["--objective"]}
    meant = read_compress_config(None, [flags["--set"]], values | {"budget.target_on": flags["--target-on"]})
    assert (meant.search, meant.budget) == (search, budget)


def test_what_the_map_says_of_the_default() -> None:
    """Options of the default search, in the table beyond the paper; the paper's mode is named where it is meant."""
    usual, table = SearchOptions(), TEXT.split("## Beyond the paper")[1]
    stated = [pair for pair in re.findall(r"`(\w+)=([^`]+)`", table) if pair[0] in {f.name for f in fields(usual)}]
    named = {"bits", "signal", "prices", "max_swaps", "frontier", "exit_ms", "before_training", "error_passes"}
    assert {name for name, _ in stated} == named
    assert all(ast.literal_eval(value) == getattr(usual, name) for name, value in stated)


def test_defaults_are_the_papers() -> None:
    usual = SearchOptions()
    assert (usual.lambda_outer, usual.lambda_inner, usual.alpha, usual.tau) == (0.5, 0.5, 0.75, 0.05)
    assert (usual.bit_min, usual.bit_max) == (3, 6)
    assert TEMPERATURE == 2.0
    assert Budget().average_bits == 4.0
    assert (QuantSettings().weight_bits, QuantSettings().act_bits) == (4, 4)
    assert usual_lr(256) == 5e-4  # not the paper's 1e-5, as the map says
