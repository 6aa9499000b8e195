"""What YAML that people write is read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maqee.errors import MaqeeError
from maqee.yaml_files import read_yaml, split_assignment


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3e10", 3e10),
        ("4.494e10", 4.494e10),
        ("1E-4", 1e-4),
        (".5e+3", 500.0),
        ("-2.e2", -200.0),
        ("3.0e+10", 3e10),
        ("12", 12),
        ("0.5", 0.5),
        ("e10", "e10"),
        ("3e10x", "3e10x"),
        ("W4A4", "W4A4"),
        ("'3e10'", "3e10"),
        ("true", True),
        ("[1e3, a]", [1000.0, "a"]),
    ],
)
def test_values(value: str, expected: Any) -> None:
    key, found = split_assignment(f"budget.max_bops={value}", "a=1")
    assert (key, found) == ("budget.max_bops", expected)
    assert type(found) is type(expected)


def test_files_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "table.yaml").write_text("budget: {max_bops: 3e10}\n")
    assert read_yaml(tmp_path / "table.yaml", "a table") == {"budget": {"max_bops": 3e10}}


def test_no_objects(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(MaqeeError, match="is not valid YAML"):
        read_yaml(tmp_path / "bad.yaml", "a table")
