"""Images, what is to be predicted for them, transforms, batches; and readers, which are loaded when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maqee.data.augment import Augmentation
from maqee.data.batches import TrainBatches, eval_batches
from maqee.data.dataset import ImageSet, Overlap, Splits, find_overlaps, hold_out, warn_of_overlaps
from maqee.data.images import ArrayImages, FileEntry, FileImages

if TYPE_CHECKING:
    from maqee.data.readers import open_data, open_source, open_split

__all__ = [
    "ArrayImages",
    "Augmentation",
    "FileEntry",
    "FileImages",
    "ImageSet",
    "Overlap",
    "Splits",
    "TrainBatches",
    "eval_batches",
    "find_overlaps",
    "hold_out",
    "open_data",
    "open_source",
    "open_split",
    "warn_of_overlaps",
]


def __getattr__(name: str) -> Any:
    """Readers: a model that runs needs none of them."""
    if name not in ("open_data", "open_source", "open_split"):
        raise AttributeError(f"module 'maqee.data' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("maqee.data.readers"), name)
