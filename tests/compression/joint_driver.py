"""The default search in a process of its own: `python -m tests.compression.joint_driver MODEL OUT`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from maqee.apq import Budget, SearchOptions
from maqee.compression import compress
from maqee.exits import EarlyExitModel
from maqee.runtime import ReadyModel
from tests.compression.makers import digits, quick_options


def run(model: Path, out: Path) -> ReadyModel:
    """Choose pairs of widths for the digits model, and a frontier."""
    return compress(
        EarlyExitModel.load(model),
        digits("calibration"),
        budget=Budget(like="W4A4"),
        search_options=SearchOptions(max_swaps=3, act_max=5, bit_max=5, frontier=True),
        options=quick_options(),
        out=out,
        device="cpu",
        show=False,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), Path(sys.argv[2]))
