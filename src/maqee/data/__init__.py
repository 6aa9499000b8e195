"""Readers, splits, transforms and batches."""

from maqee.data.augment import Augmentation
from maqee.data.batches import TrainBatches, eval_batches
from maqee.data.dataset import ImageSet, Overlap, Splits, find_overlaps, hold_out, warn_of_overlaps
from maqee.data.images import ArrayImages, FileEntry, FileImages
from maqee.data.readers import open_data, readers

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
    "readers",
    "warn_of_overlaps",
]
