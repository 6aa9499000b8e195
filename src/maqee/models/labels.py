"""Names of a model's classes: where other libraries keep them, and how they are read back from our own files."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from maqee.errors import MaqeeError

logger = logging.getLogger(__name__)

_MADE_UP = re.compile(r"(class|LABEL)[ _]\d+")  # what readers and libraries write where they know no name
_CODE = re.compile(r".*\d")  # n01440764, /m/01g317: a name for machines, which deserves a description


def has_names(classes: Sequence[str]) -> bool:
    """Whether a list of classes has real names and not numbers in disguise."""
    return bool(classes) and not all(_MADE_UP.fullmatch(name) for name in classes)


def read_class_names(config: Mapping[str, Any], count: int, source: str) -> tuple[str, ...]:
    """Class names in the order of the logits, from any config file; empty where it has none that can be used.

    Args:
        config: of transformers (`id2label`), of timm (`label_names`) or our own (`classes`).
        count: how many classes the classifier has; 0 if there is none.
        source: the file, named in messages. Our own files must be right; names of others that do not fit the
            classifier are left out with a warning, because the network is of use without them: it is common to
            replace a classifier and to forget the names.
    """
    if str(config.get("format")).startswith("maqee-"):
        return stored_class_names(config, count, source)
    for key, names in _candidates(config):
        ordered = _in_order(names)
        if count and (ordered is None or (has_names(ordered) and len(ordered) != count)):
            logger.warning("%s: %s does not name the %d classes one by one, so it is not used", source, key, count)
        elif count and ordered is not None and has_names(ordered):
            return ordered
    return ()


def stored_class_names(values: Mapping[str, Any], count: int, source: str) -> tuple[str, ...]:
    """What our own files hold under "classes"; those of older versions hold nothing."""
    names = values.get("classes", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise MaqeeError(f"{source}: key 'classes' must be a list of names.")
    if names and len(names) != count:
        raise MaqeeError(f"{source}: key 'classes' has {len(names)} names, the model has {count} classes.")
    return tuple(names)


def _candidates(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Everything that may hold names, with the key that it stands under, the best first."""
    found = [("id2label", config.get("id2label"))]
    for place in (config, config.get("pretrained_cfg")):
        if isinstance(place, Mapping):
            names = place.get("label_names")
            found.append(("label_names", _described(_in_order(names), place.get("label_descriptions")) or names))
    return [(key, names) for key, names in found if names]


def _in_order(names: Any) -> tuple[str, ...] | None:
    """A list, or a mapping from the numbers 0, 1, ... (which JSON makes text of), as names; None for anything else."""
    if isinstance(names, Mapping):
        numbered = {str(number): name for number, name in names.items()}
        if set(numbered) != {str(number) for number in range(len(names))}:
            return None
        names = [numbered[str(number)] for number in range(len(numbered))]
    if not isinstance(names, list | tuple) or not all(type(name) in (str, int) for name in names):
        return None
    return tuple(str(name) for name in names)


def _described(names: tuple[str, ...] | None, descriptions: Any) -> tuple[str, ...] | None:
    """Codes with what they mean in front, "tench, n01440764", so that people can read them and data may use either."""
    if names is None or not descriptions or not all(_CODE.match(name) for name in names):
        return names
    if not isinstance(descriptions, Mapping):
        listed = _in_order(descriptions) or ()
        descriptions = dict(zip(names, listed, strict=True)) if len(listed) == len(names) else {}
    meant = [descriptions.get(name) for name in names]
    return tuple(
        f"{text}, {name}" if isinstance(text, str) and text not in ("", name) else name
        for name, text in zip(names, meant, strict=True)
    )
