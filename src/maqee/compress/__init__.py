"""From a trained model with exits to a plan and a quantized model that follows it."""

from maqee.compress.folder import CompressedModel, compress_folder, load
from maqee.compress.measure import ModelMeasure
from maqee.compress.recovery import Recovery, RecoverySettings
from maqee.compress.run import Compressed, CompressOptions, compress

__all__ = [
    "CompressOptions",
    "Compressed",
    "CompressedModel",
    "ModelMeasure",
    "Recovery",
    "RecoverySettings",
    "compress",
    "compress_folder",
    "load",
]
