"""Data sets that can be opened by name, one file each."""

from maqee.data.readers import ade20k, bccd, camvid, cifar100, class_folders, coco, digits, imagenet  # noqa: F401
from maqee.data.readers.registry import DataOptions, open_data, open_source, open_split, readers

__all__ = ["DataOptions", "open_data", "open_source", "open_split", "readers"]
