"""From a trained model with exits to a plan and a quantized model that follows it."""

from maqee.compression.compress_options import CompressOptions
from maqee.compression.compress_run import compress
from maqee.compression.job import compress_model
from maqee.compression.model_measure import ModelMeasure
from maqee.compression.promise import RiskOptions
from maqee.compression.recovery import Recovery
from maqee.compression.recovery_settings import RecoverySettings

__all__ = [
    "CompressOptions",
    "ModelMeasure",
    "Recovery",
    "RecoverySettings",
    "RiskOptions",
    "compress",
    "compress_model",
]
