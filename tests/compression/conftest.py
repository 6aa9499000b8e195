"""The model that these tests compress."""

from __future__ import annotations

from pathlib import Path

import pytest

from maqee.exits import EarlyExitModel
from tests.helpers import FIXTURES, load_miniature


@pytest.fixture
def model() -> EarlyExitModel:
    """A model of the digits that is right more often than not, and seldom sure."""
    return load_miniature()


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """Where it lies; nothing may be written there."""
    return FIXTURES / "digits"
