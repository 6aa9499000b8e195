"""Readers of other libraries' checkpoints: transformers, timm and the original DINOv2 release."""

from maqee.models.convert.convert import Converted, convert_state

__all__ = ["Converted", "convert_state"]
