"""The help: every page is there, options are grouped, and an option means the same wherever it occurs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import typer

import maqee.environment
from maqee.cli import app
from tests.helpers import invoke

ROOT: Any = typer.main.get_command(app)


def commands() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in ROOT.commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {verb}": entry for verb, entry in inner.items()} if inner else {name: command}
    return found


COMMANDS = commands()


def options(command: Any) -> dict[str, Any]:
    return {name: entry for entry in command.params for name in entry.opts if name.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_page(name: str) -> None:
    result = invoke(*name.split(), "--help")
    assert result.exit_code == 0
    assert (COMMANDS[name].help or "").split("\n")[0].endswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_and_has_its_place(name: str) -> None:
    for entry in COMMANDS[name].params:
        if entry.name == "help":
            continue
        assert len(entry.help or "") > 8, entry.name
        if entry.opts[0].startswith("--"):
            assert entry.rich_help_panel, f"{name} {entry.opts[0]}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_print_json_and_write_it(name: str) -> None:
    assert {"--json", "--out"} <= set(options(COMMANDS[name]))


def test_an_option_has_one_wording() -> None:
    """Where an option of several commands has other words, there is a reason."""
    wordings: dict[str, set[str]] = defaultdict(set)
    for command in COMMANDS.values():
        for option, entry in options(command).items():
            wordings[option].add(entry.help)
    different = {option for option, words in wordings.items() if len(words) > 1}
    reasons = {
        "--act-bits",  # `cost` counts 32 bits as float
        "--batch",  # images of a step, or images at a time
        "--bits",  # one pair of widths, or several
        "--data",  # where a run cannot know it
        "--device",  # `show` runs on the processor unless told otherwise
        "--frontier",  # to search for one, or to evaluate one
        "--images",  # to calibrate, to test, to show
        "--lambda-outer",
        "--mean-exit",  # one, or several
        "--method",  # one, or several
        "--out",  # a file of figures, or a folder
        "--repeats",
        "--samples",
        "--seed",  # one, or several
        "--set",  # of a compression, or of a table
        "--solver",  # thresholds alone, or bits as well
        "--threshold",  # `show` has one for training runs unless told otherwise
        "--weight-bits",
    }
    assert different <= reasons


def test_options_that_were_one_of_many() -> None:
    """One way to say each thing: models and runs stand first, methods are --method, bits of a part are its name."""
    for name, command in COMMANDS.items():
        gone = {"--methods", "--trace", "--path", "--patch-bits", "--classifier-bits"}
        gone |= set() if name == "table" else {"--seeds"}  # how many, not which
        assert not gone & set(options(command)), name
    assert {name for name, command in COMMANDS.items() if "--model" in options(command)} == {"diagnose"}


def test_the_pages_speak_plainly() -> None:
    pages = "".join(invoke(*name.split(), "--help").output for name in COMMANDS)
    words = " ".join(pages.replace("│", " ").split())
    for plain in ("Random seed.", "Largest accuracy drop from full precision (0.01 = 1 point).", "Timed repetitions."):
        assert plain in words
    for odd in ("Of everything", "Timed turns", "Of the processor", "the same, as how"):
        assert odd not in words


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"maqee {maqee.environment.version()}\n"
