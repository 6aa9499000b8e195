"""Classes of a data set put into the order of a model's: by name, because numbers mean nothing without one.

Two lists of the same classes are rarely in the same order: a folder of images sorts its names, a published model has
them as its authors had. Comparing numbers would then give figures that look like those of a bad model.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch

from maqee.data.dataset import ImageSet, Splits
from maqee.errors import MaqeeError
from maqee.models import Backbone

logger = logging.getLogger(__name__)

_MADE_UP = re.compile(r"(class|LABEL)[ _]\d+")  # what readers and libraries write where they know no name


def has_names(classes: Sequence[str]) -> bool:
    """Whether a list of classes has real names and not numbers in disguise."""
    return bool(classes) and not all(_MADE_UP.fullmatch(name) for name in classes)


def align_splits(splits: Splits, backbone: Backbone) -> Splits:
    """All three sets with labels in the model's order; a data set with other classes is the user's error."""
    names, count, data = backbone.classes, backbone.config.num_classes, splits.test
    if not (has_names(names) and has_names(data.classes)):
        _check_count(data, count)
        if has_names(data.classes):
            logger.warning("The model has no class names: the classes of %s are matched by their numbers", data.name)
        return splits
    table = find_classes(data.classes, names, data.name)
    if table == list(range(count)):
        return splits
    if missing := count - len(table):
        logger.warning("%s lacks %d of the model's %d classes", data.name, missing, count)
    train = None if splits.train is None else _relabelled(splits.train, table, names)
    return Splits(train, _relabelled(splits.calibration, table, names), _relabelled(splits.test, table, names))


def same_classes(backbone: Backbone, data: ImageSet) -> bool:
    """Whether a model can name every class of a data set, so that its classifier is worth keeping."""
    if not (has_names(backbone.classes) and has_names(data.classes)):
        return backbone.config.num_classes == len(data.classes)
    return not _unknown(data.classes, backbone.classes)


def find_classes(wanted: Sequence[str], names: Sequence[str], data: str) -> list[int]:
    """For each class of a data set its number in the model; names that the model does not have are an error.

    Example:
        >>> find_classes(["cat", "sea_lion"], ["Sea lion", "dog", "cat"], "pets")
        [2, 0]
    """
    if unknown := _unknown(wanted, names):
        listed = ", ".join(repr(name) for name in unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        known = ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
        raise MaqeeError(
            f"{data} has {len(unknown)} classes that the model does not know ({listed}), whose classes are {known}: "
            "give the data that the model was trained for."
        )
    places = _places(names)
    table = [places[_plain(name)] for name in wanted]
    twice = [wanted[table.index(place)] for place, count in Counter(table).items() if count > 1]
    if twice:
        raise MaqeeError(f"{data} has two classes that are {twice[0]!r} to the model: give each class one name.")
    return table


def _unknown(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    places = _places(names)
    return [name for name in wanted if _plain(name) not in places]


def _places(names: Sequence[str]) -> dict[str, int]:
    """Numbers by plain names; of "tench, Tinca tinca" the first word alone will do where no other class has it."""
    first = Counter(_plain(name.split(",")[0]) for name in names)
    places = {
        _plain(name.split(",")[0]): number
        for number, name in enumerate(names)
        if first[_plain(name.split(",")[0])] == 1
    }
    whole = Counter(_plain(name) for name in names)
    return places | {_plain(name): number for number, name in enumerate(names) if whole[_plain(name)] == 1}


def _plain(name: str) -> str:
    """A name without what folder names change: capitals, underscores, hyphens."""
    return " ".join(re.sub(r"[_\-]+", " ", name).casefold().split())


def _relabelled(data: ImageSet, table: Sequence[int], names: tuple[str, ...]) -> ImageSet:
    kind, targets = data.kind.relabel(data.targets, torch.tensor(table, device=data.targets.device))
    return replace(data, kind=kind, targets=targets, classes=names)


def _check_count(data: ImageSet, count: int) -> None:
    if len(data.classes) != count:
        raise MaqeeError(
            f"The model has {count} classes and {data.name} has {len(data.classes)}: give the data it is made for."
        )
