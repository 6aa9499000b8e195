"""Kernels run compiled where there is a GPU, and in Triton's interpreter elsewhere (the conftest above sees to it)."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where kernels run."""
    pytest.importorskip("triton", reason="Triton is not installed on this machine")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
