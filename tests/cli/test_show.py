"""`maqee show` on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.helpers import invoke
from tests.report import makers


def test_show(tmp_path: Path) -> None:
    run, out = makers.classification(tmp_path), tmp_path / "out"
    result = invoke("show", str(run), "--out", str(out), "--images", "2", "--threshold", "0.1")
    assert result.exit_code == 0, result.output
    assert "2 pictures written" in result.output
    assert [path.name for path in sorted(out.iterdir())] == ["test-00000.png", "test-00180.png"]


def test_mistakes_have_exit_code_2(tmp_path: Path) -> None:
    run = makers.classification(tmp_path)
    for arguments in (
        [str(run)],
        [str(run), "--out", str(tmp_path / "out"), "--images", "0"],
        [str(run), "--out", str(tmp_path / "out"), "--split", "validation"],
        [str(tmp_path / "gone"), "--out", str(tmp_path / "out")],
    ):
        assert invoke("show", *arguments).exit_code == 2, arguments
    assert not (tmp_path / "out").exists()
