"""Readers of other libraries' checkpoints: transformers, timm and the original DINOv2 release."""

from maqee.models.convert.convert import Converted, convert_state
from maqee.models.convert.hints import Hints, read_hints

__all__ = ["Converted", "Hints", "convert_state", "read_hints"]
