"""Where to compute."""

from __future__ import annotations

import torch

from maqee.errors import MaqeeError

PRECISIONS = ("fp32", "bf16")


def pick_device(name: str | None) -> torch.device:
    """The device of that name; the GPU if there is one, when left out."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise MaqeeError(f"device: {name!r} is no device: give cpu, cuda, or cuda:1.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MaqeeError(f"device: {name} was asked and {torch.cuda.device_count()} GPUs are usable here: give cpu.")
    return device


def check_precision(name: str) -> str:
    """The name of a precision that can be computed in; another one is the user's error."""
    if name not in PRECISIONS:
        raise MaqeeError(f"precision: {name!r} is not one of {', '.join(PRECISIONS)}.")
    return name


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was asked; on the CPU that is always so."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
