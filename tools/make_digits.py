"""Write src/maqee/data/readers/digits.npz from scikit-learn's copy of the digits. Needs scikit-learn; run once."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
np.savez_compressed(
    Path(__file__).parents[1] / "src/maqee/data/readers/digits.npz",
    pixels=digits.images.astype(np.uint8),  # (1797, 8, 8), values 0..16
    labels=digits.target.astype(np.uint8),
)
