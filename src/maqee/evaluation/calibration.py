"""Which calibration images are used for what: none is used for two things."""

from __future__ import annotations

import numpy as np

from maqee.data import ImageSet
from maqee.errors import MaqeeError


def draw_images(calibration: ImageSet, fit_images: int, samples: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Images to fit grids on, and others to measure risks on, in random order."""
    if len(calibration) <= fit_images:
        raise MaqeeError(
            f"{calibration.name} has {len(calibration)} images; {fit_images} are needed to fit grids and more to "
            "measure risks: give more calibration images, or fit on fewer (fit_images)."
        )
    order = _order(calibration, seed)
    return calibration.select(order[:fit_images]), calibration.select(order[fit_images:][:samples])


def other_images(calibration: ImageSet, fit_images: int, samples: int, seed: int) -> list[int]:
    """Indices of the images that neither fitting nor measuring looks at, for guarantees."""
    return _order(calibration, seed)[fit_images + samples :]


def _order(calibration: ImageSet, seed: int) -> list[int]:
    return [int(index) for index in np.random.RandomState(seed).permutation(len(calibration))]
