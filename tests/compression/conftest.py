"""The trained model is made once."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from maqee.exits import EarlyExitModel
from tests.compression.makers import trained_model


@pytest.fixture(scope="session")
def _shared_model() -> EarlyExitModel:
    return trained_model()


@pytest.fixture
def model(_shared_model: EarlyExitModel) -> EarlyExitModel:
    """A copy of it."""
    return copy.deepcopy(_shared_model)


@pytest.fixture(scope="session")
def model_folder(_shared_model: EarlyExitModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It in a folder."""
    folder = tmp_path_factory.mktemp("models") / "digits"
    _shared_model.save(folder)
    return folder
