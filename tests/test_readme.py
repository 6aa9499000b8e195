"""The README's code runs, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import invoke

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_python_snippets_run() -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})


def test_commands_exist() -> None:
    commands = set(re.findall(r"`maqee ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "train", "eval", "cost", "bench", "ls"} <= commands
    for command in commands:
        assert invoke(command, "--help").exit_code == 0, command


def test_linked_files_exist() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"
