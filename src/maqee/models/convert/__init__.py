"""Readers of other libraries' checkpoints: transformers, timm and the original DINOv2 release."""

from maqee.models.convert.convert import Converted, convert_state
from maqee.models.convert.hints import Hints, read_hints
from maqee.models.convert.live import check_module, live_values

__all__ = ["Converted", "Hints", "check_module", "convert_state", "live_values", "read_hints"]
