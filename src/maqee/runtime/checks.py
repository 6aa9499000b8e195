"""What is wrong with what was handed over, said before a layer fails on it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from maqee.errors import MaqeeError


def check_images(images: Any, channels: int) -> None:
    """Complain about anything but a batch of normalised images."""
    if not isinstance(images, Tensor):
        raise MaqeeError(
            f"The model takes normalised images as a tensor, not {type(images).__name__}: for files, pictures and "
            "arrays use predict."
        )
    if images.ndim != 4 or images.shape[1] != channels:
        raise MaqeeError(
            f"The model takes (batch, {channels}, height, width), not {tuple(images.shape)}: add the batch "
            "dimension, or use predict."
        )
    if not images.is_floating_point():
        raise MaqeeError(f"The model takes normalised numbers, not {images.dtype}: use predict, which prepares pixels.")
