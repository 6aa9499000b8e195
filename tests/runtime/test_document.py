"""The documents about predicting and about streams: their code runs and their commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers import invoke
from tests.runtime import makers

DOCUMENT = Path(__file__).parents[2] / "docs" / "predict.md"
STREAMS = DOCUMENT.with_name("streams.md")


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the run and the pictures that the document speaks of."""
    monkeypatch.chdir(tmp_path)
    makers.write_trained_run(Path("RUN"), makers.small_model(channels=3))
    Path("pictures").mkdir()
    for number, name in enumerate(("cat", "dog")):
        Image.fromarray(makers.some_pixels(seed=number)).save(f"pictures/{name}.jpg")


def test_the_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    snippets = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    assert len(snippets) == 2
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, DOCUMENT.name, "exec"), names)
    output = capsys.readouterr().out
    assert "pictures/cat.jpg" in output
    assert "image 4" in output


def test_the_commands_work() -> None:
    commands = re.findall(r"^    maqee (predict .*)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        result = invoke(*shlex.split(command, comments=True), "--device", "cpu")
        assert result.exit_code == 0, (command, result.exception)
        assert "pictures/cat.jpg" in result.stdout


def test_the_streams_run(capsys: pytest.CaptureFixture[str]) -> None:
    [snippet] = re.findall(r"```python\n(.*?)```", STREAMS.read_text(), flags=re.DOTALL)
    exec(compile(snippet, STREAMS.name, "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["pictures/cat.jpg", "pictures/dog.jpg"]
    assert len(lines) == 2 + 20


def test_the_commands_of_streams_are_understood() -> None:
    """They take minutes on presets; here a file in the place of the results' folder stops them behind the parsing."""
    commands = re.findall(r"^    maqee (bench stream .*)$", STREAMS.read_text(), flags=re.MULTILINE)
    assert len(commands) == 12
    Path("file").touch()
    for command in commands:
        result = invoke(*shlex.split(command, comments=True), "--out", "file/out.json")
        assert "Cannot write" in str(result.exception), command
