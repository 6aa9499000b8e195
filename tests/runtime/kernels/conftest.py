"""Kernels run compiled where there is a GPU, and in Triton's interpreter elsewhere."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before the first kernel is defined


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where kernels run."""
    pytest.importorskip("triton", reason="Triton is not installed on this machine")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
