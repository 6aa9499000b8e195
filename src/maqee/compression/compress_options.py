"""How a model is compressed, apart from the search's own options."""

from __future__ import annotations

from dataclasses import dataclass, field

from maqee.compression.promise import RiskOptions
from maqee.compression.recovery_settings import RecoverySettings
from maqee.errors import MaqeeError
from maqee.quant import QuantSettings


@dataclass(frozen=True, kw_only=True)
class CompressOptions:
    """What decides a compression besides budget and search.

    Attributes:
        method: quantization method.
        task: name of the task; left out, the one that the model was trained for.
        quantization: bits of everything that the search does not choose.
        fit_images: calibration images that grids are fitted on.
        samples: further calibration images that risks and thresholds are measured on.
        scored: those of them that single blocks are run on at other widths.
        recovery_steps: training steps at the end; 0 is none. Steps after every swap are the search's option.
        recovery: how to train.
        risk: a promise to make with the calibration images that are left over; None is none.
        seed: random seed.
    """

    method: str = "erq"
    task: str | None = None
    quantization: QuantSettings = field(default_factory=QuantSettings)
    fit_images: int = 32
    samples: int = 1024
    scored: int = 512
    recovery_steps: int = 0
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    risk: RiskOptions | None = None
    seed: int = 0

    @property
    def draws(self) -> tuple[int, int, int]:
        """Images to fit on, images to measure on and the seed: which calibration images are used for what."""
        return self.fit_images, self.samples, self.seed

    def __post_init__(self) -> None:
        for name in ("fit_images", "samples", "scored"):
            if getattr(self, name) < 1:
                raise MaqeeError(f"{name}: {getattr(self, name)} must be at least one calibration image.")
        if self.recovery_steps < 0:
            raise MaqeeError(f"recovery_steps: {self.recovery_steps} must be at least 0.")
        if not 0 <= self.seed < 2**32:
            raise MaqeeError(f"seed: {self.seed} must be from 0 to {2**32 - 1}.")
