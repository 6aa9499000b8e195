"""`maqee envelope` through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maqee.cli.options import parse_spans
from maqee.errors import MaqeeError
from tests.helpers import FIXTURES, invoke

MODEL = str(FIXTURES / "digits")
QUICK = ("--data", "digits", "--samples", "20", "--fit-images", "4", "--device", "cpu", "--method", "rtn")


def test_table_and_file(tmp_path: Path) -> None:
    out = tmp_path / "envelope.json"
    result = invoke("envelope", MODEL, *QUICK, "--weights", "3-4", "--activations", "8", "--out", str(out))
    assert result.exit_code == 0, result.output
    values = json.loads(out.read_text())
    assert [pair["bits"] for pair in values["pairs"]] == ["W3A8", "W4A8"]
    assert "in the baselines' favour" in result.output
    for point in values["envelope"]:
        assert f"{point['accuracy']:.2%}" in result.output
        assert point["bits"] in ("W3A8", "W4A8")
    assert str(tmp_path.parent) not in out.read_text()


def test_mistakes() -> None:
    for more, words in (
        (("--weights", "three"), "--weights 'three' must be whole numbers such as 3-6 or 4,8"),
        (("--weights", "6-3"), "No bits are given for weights"),
        (("--activations", "4,16"), "Activations of 16 bits are impossible"),
    ):
        result = invoke("envelope", MODEL, *QUICK, *more)
        assert result.exit_code == 2
        assert words in str(result.exception)
    assert "nowhere is no folder" in str(invoke("envelope", "nowhere").exception)
    assert "does not say which data" in str(invoke("envelope", MODEL).exception)


def test_spans() -> None:
    assert parse_spans("3-6", "--weights") == [3, 4, 5, 6]
    assert parse_spans("4, 8", "--weights") == [4, 8]
    assert parse_spans("2-3,8", "--weights") == [2, 3, 8]
    for wrong in ("3-", "-3", "3-4-5", "x", "3.5"):
        with pytest.raises(MaqeeError, match="whole numbers"):
            parse_spans(wrong, "--weights")
