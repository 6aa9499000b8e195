"""Pictures for all tests of finished models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.makers import write_pictures


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Eight files of 20 x 30 pixels."""
    return write_pictures(tmp_path / "pics", count=8)
