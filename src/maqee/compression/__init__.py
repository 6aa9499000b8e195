"""From a trained model with exits to a plan and a quantized model that follows it.

`maqee.compress` is this package as soon as anything of it has been imported, and the function before. So the package
can be called like the function, and `maqee.compress(model, images)` works at any time.
"""

import sys
from types import ModuleType

from maqee.compression.guarantee import RiskOptions
from maqee.compression.job import Compressed, CompressOptions, compress
from maqee.compression.model_measure import ModelMeasure
from maqee.compression.recovery import Recovery, RecoverySettings
from maqee.compression.run_folder import CompressedModel, compress_folder, load

__all__ = [
    "CompressOptions",
    "Compressed",
    "CompressedModel",
    "ModelMeasure",
    "Recovery",
    "RecoverySettings",
    "RiskOptions",
    "compress",
    "compress_folder",
    "load",
]


class _Callable(ModuleType):
    def __call__(self, *arguments: object, **options: object) -> Compressed:
        return compress(*arguments, **options)  # type: ignore[arg-type]


sys.modules[__name__].__class__ = _Callable
