"""Classes of a data set put into the order of a model's: by name, because numbers mean nothing without one.

Two lists of the same classes are rarely in the same order: a folder of images sorts its names, a published model has
them as its authors had. Comparing numbers would then give figures that look like those of a bad model.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from maqee.data.dataset import ImageSet, Splits
from maqee.errors import MaqeeError
from maqee.models import Backbone
from maqee.models.labels import has_names

logger = logging.getLogger(__name__)

_NO_CLASS = re.compile(r"\(no class \d+\)|N/A")  # numbers that COCO's list skips, as our reader and others call them
_WORDNET_ID = re.compile(r"n\d{8}")  # ImageNet's folders


def align_splits(splits: Splits, backbone: Backbone) -> Splits:
    """All three sets with labels in the model's order; a data set with other classes is the user's error."""
    data, names = splits.test, backbone.classes
    if reason := _why_numbers(data, names):
        _check_count(data, backbone.config.num_classes)
        if has_names(names) or has_names(data.classes):
            logger.warning("%s: the classes of %s are matched by their numbers", reason, data.name)
        return splits
    table = find_classes(data.classes, names, data.name)
    missing = sum(not _NO_CLASS.fullmatch(name) for number, name in enumerate(names) if number not in table)
    if missing:
        logger.warning("%s lacks %d of the model's %d classes", data.name, missing, len(names))
    train = None if splits.train is None else _aligned(splits.train, names)
    return Splits(train, _aligned(splits.calibration, names), _aligned(splits.test, names))


def same_classes(backbone: Backbone, data: ImageSet) -> bool:
    """Whether a model can name every class of a data set, so that its classifier is worth keeping."""
    if _why_numbers(data, backbone.classes):
        return backbone.config.num_classes == len(data.classes)
    return None not in _find(data.classes, backbone.classes)


def find_logits(data: ImageSet, backbone: Backbone) -> list[int]:
    """For each class of a data set the logit that a model has for it: by name, or by number where there are none."""
    if _why_numbers(data, backbone.classes):
        _check_count(data, backbone.config.num_classes)
        return list(range(len(data.classes)))
    return find_classes(data.classes, backbone.classes, data.name)


def find_classes(wanted: Sequence[str], names: Sequence[str], data: str) -> list[int]:
    """For each class of a data set its number in the model; names that the model does not have are an error.

    Example:
        >>> find_classes(["cat", "sea_lion"], ["Sea lion", "dog", "cat"], "pets")
        [2, 0]
    """
    found = _find(wanted, names)
    if unknown := [name for name, place in zip(wanted, found, strict=True) if place is None]:
        raise MaqeeError(
            f"{data}: {len(unknown)} of {len(wanted)} classes are unknown to the model ({_listed(unknown)}), whose "
            f"classes are {_listed(names)}: give the data that it was trained for, or call the classes as it does."
        )
    table = [place for place in found if place is not None]
    real = Counter(place for name, place in zip(wanted, table, strict=True) if not _NO_CLASS.fullmatch(name))
    if twice := [wanted[table.index(place)] for place, count in real.items() if count > 1]:
        raise MaqeeError(f"{data} has two classes that are {twice[0]!r} to the model: give each class one name.")
    return table


def _why_numbers(data: ImageSet, names: Sequence[str]) -> str:
    """Why names cannot be compared, so that numbers must do; empty if they can."""
    if not has_names(names):
        return "The model has no class names"
    if not has_names(data.classes):
        return f"{data.name} has no class names"
    codes = [all(_WORDNET_ID.fullmatch(name) for name in listed) for listed in (data.classes, names)]
    if any(codes) and set(_find(data.classes, names)) == {None}:
        return f"{data.name} calls its first class {data.classes[0]!r}, the model its own {names[0]!r}"
    return ""


def _find(wanted: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """The number of each class in the model; None for one that it does not have, or has several times.

    Of "tench, Tinca tinca" a part will do if no other class has it. Capitals matter only where they must: a Cardigan is
    a dog. Where a name occurs twice (ImageNet has two cranes, a bird and a machine), the class with the same number is
    meant. A number that stands for no class is no question.
    """
    found: list[int | None] = [
        min(number, len(names) - 1) if _NO_CLASS.fullmatch(name) else None for number, name in enumerate(wanted)
    ]
    places: dict[str, list[int]] = {}
    for form, in_parts in ((_spelt, False), (_spelt, True), (_plain, False), (_plain, True)):
        places, count = _numbers(names, form, in_parts), Counter(map(form, wanted))
        for number, name in enumerate(wanted):
            bearers = places.get(form(name), [])
            if found[number] is None and len(bearers) == count[form(name)] == 1:
                found[number] = bearers[0]
    for number, name in enumerate(wanted):
        if found[number] is None and number in places.get(_plain(name), []):
            found[number] = number
    return found


def _numbers(names: Sequence[str], form: Callable[[str], str], in_parts: bool) -> dict[str, list[int]]:
    """Which classes bear a name, as a whole, or also as one of the parts between commas."""
    found = defaultdict[str, list[int]](list)
    for number, name in enumerate(names):
        for borne in {form(part) for part in ([name, *name.split(",")] if in_parts else [name])}:
            found[borne].append(number)
    return found


def _spelt(name: str) -> str:
    """A name without what folder names change: underscores, hyphens, how accents are written."""
    return " ".join(re.sub(r"[_\-]+", " ", unicodedata.normalize("NFKC", name)).split())


def _plain(name: str) -> str:
    """The same without capitals."""
    return _spelt(name).casefold()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")


def _aligned(data: ImageSet, names: tuple[str, ...]) -> ImageSet:
    table = find_classes(data.classes, names, data.name)
    if table == list(range(len(names))):
        return data
    kind, targets = data.kind.relabel(data.targets, torch.tensor(table, device=data.targets.device))
    return replace(data, kind=kind, targets=targets, classes=names)


def _check_count(data: ImageSet, count: int) -> None:
    if len(data.classes) != count:
        raise MaqeeError(
            f"The model has {count} classes and {data.name} has {len(data.classes)}: give the data it is made for."
        )
