"""Fixtures for every test: determinism, and the real data and weights where they are present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from maqee.processor import check_reduced_precision

check_reduced_precision("bf16", torch.device("cpu"))  # tests share processes: before the first product of any of them
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach the network
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton: its own functions are wrapped at that moment
settings.register_profile("maqee", deadline=None, derandomize=True)
settings.load_profile("maqee")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whoever asks for what not every machine has."""
    markers = {"shared_data": "real_data", "shared_weights": "real_data", "gpu": "gpu"}
    for item in items:
        for name in getattr(item, "fixturenames", ()):
            if name in markers:
                item.add_marker(markers[name])


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets beside the checkout."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the real data sets are not beside this checkout (../shared/data)")
    return SHARED / "data"


@pytest.fixture
def shared_weights() -> Path:
    """The folder of real weights beside the checkout."""
    if not (SHARED / "weights").is_dir():
        pytest.skip("the real weights are not beside this checkout (../shared/weights)")
    return SHARED / "weights"


@pytest.fixture
def gpu() -> torch.device:
    """A GPU."""
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    return torch.device("cuda")
