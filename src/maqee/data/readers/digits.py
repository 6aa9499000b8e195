"""The bundled data set: 1,797 handwritten digits of 8x8 pixels (UCI "Optical Recognition of Handwritten Digits").

They come with scikit-learn; the copy in this package was written by `tools/make_digits.py`.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch

from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import ArrayImages
from maqee.data.readers.registry import DataOptions, readers

TEST_IMAGES = CALIBRATION_IMAGES = 360
_SPLIT_SEED = 0  # the test set is always the same; only the calibration images depend on the user's seed


@readers.register("digits")
def read_digits(options: DataOptions) -> Splits:
    """1,077 training, 360 calibration and 360 test digits, balanced."""
    with (
        files("maqee.data.readers").joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        pixels, labels = arrays["pixels"], arrays["labels"]
    grey = torch.from_numpy(pixels.astype(np.int16) * 255 // 16).to(torch.uint8)[:, None]  # (n, 1, 8, 8)
    classes = tuple(str(digit) for digit in range(10))
    everything = ImageSet("digits", ArrayImages(grey), torch.from_numpy(labels).long(), classes)
    rest, test = hold_out(everything, TEST_IMAGES, _SPLIT_SEED, "digits rest", "digits test")
    count = CALIBRATION_IMAGES if options.holdout is None else options.holdout
    train, calibration = hold_out(rest, count, options.seed, "digits train", "digits calibration")
    return Splits(train, calibration, test)
