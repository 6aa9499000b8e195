"""Commands say at once that their result cannot be written: exit code 2, one sentence, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from maqee.errors import MaqeeError
from tests.helpers import invoke, save_digits_model
from tests.report import makers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_digits_model(tmp_path_factory.mktemp("unwritable") / "model")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return makers.classification(tmp_path_factory.mktemp("unwritable"))


@pytest.mark.parametrize(
    "command",
    [
        "train digits --device cpu",
        "compress {model} --data digits --device cpu",
        "eval {run} --device cpu",
        "show {run}",
        "quantize {model} --data digits --device cpu",
        "baselines {model} --data digits --device cpu",
        "envelope {model} --data digits --device cpu",
        "bench gradients --device cpu",
        "bench recovery --device cpu",
        "bench exits --device cpu",
        "bench stream --device cpu",
        "bench plans {model} --data digits --device cpu",
        "demo",
    ],
    ids=lambda command: command.split(" -")[0],
)
def test_a_file_where_a_folder_must_be(command: str, model: Path, run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = command.format(model=model, run=run).split()
    result = invoke(*arguments, "--out", str(tmp_path / "file" / "out"))
    assert isinstance(result.exception, MaqeeError), result.output
    assert "Cannot write" in str(result.exception)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_folder_where_a_file_must_be(run: Path, tmp_path: Path) -> None:
    result = invoke("eval", str(run), "--device", "cpu", "--out", str(tmp_path))
    assert "it is a folder, not a file" in str(result.exception)
