"""A compression in a process of its own: `python -m tests.compression.driver MODEL OUT MODE THREADS`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import torch

from maqee.apq import SearchOptions
from maqee.compression import compress, recovery
from maqee.exits import EarlyExitModel
from maqee.runtime import ReadyModel
from maqee.training.training_loop import LoopOptions
from tests.compression.makers import digits, quick_options


def run(model: Path, out: Path, mode: str) -> ReadyModel:
    """Compress the digits model.

    Args:
        model: its folder.
        out: the result.
        mode: "plain", "erq" (another method), or "recovery": two training steps after every swap and twelve at the
            end, with a checkpoint after every step.
    """
    trains = mode == "recovery"
    vars(recovery)["LoopOptions"] = partial(LoopOptions, checkpoint_minutes=0.0)
    method = "erq" if mode == "erq" else "repq"
    options = quick_options(method=method, samples=60 if trains else 300, recovery_steps=12 if trains else 0)
    return compress(
        EarlyExitModel.load(model),
        digits("calibration"),
        digits("train"),
        search_options=SearchOptions(
            bits="weights", max_swaps=3, recovery_steps=2 if trains else 0, swap="literal", objective="paper"
        ),
        options=options,
        out=out,
        device="cpu",
        show=False,
    )


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[4]))
    run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
