"""The document about predicting: its code runs and its commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers import invoke
from tests.runtime import makers

DOCUMENT = Path(__file__).parents[2] / "docs" / "predict.md"


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
