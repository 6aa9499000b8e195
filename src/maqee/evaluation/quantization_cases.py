"""What `maqee quantize` measures: combinations of method, bits, scope and draw of calibration images."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from maqee.errors import MaqeeError, suggest
from maqee.quant import Bits, QuantSettings, methods

SCOPES = ("default", "authors")
IDENTITY = ("method", "bits", "scope", "images", "seed")


@dataclass(frozen=True)
class Case:
    """One thing to measure; `method` "float" is the model as it came.

    Attributes:
        method: a name of the registry.
        bits: weight and activation bits, as in "W4A4".
        scope: "default" or "authors".
        images: number of calibration images.
        seed: decides which.
    """

    method: str
    bits: str
    scope: str
    images: int
    seed: int | None

    def identity(self) -> tuple[Any, ...]:
        """What makes two rows the same measurement."""
        return tuple(getattr(self, name) for name in IDENTITY)


FULL_PRECISION = Case("float", "float", "-", 0, None)


def list_cases(
    method: Sequence[str], bits: Sequence[str], scope: Sequence[str], seeds: Sequence[int], images: int
) -> list[Case]:
    """All combinations, checked; the first seed's come first, so that an early look shows every row."""
    for name in method:
        _ = methods[name]
    for name in scope:
        if name not in SCOPES:
            raise suggest(name, list(SCOPES), "scope")
    if images < 1:
        raise MaqeeError(f"images: {images} calibration images are too few: give at least 1.")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise MaqeeError(f"seeds: {seed} must be from 0 to {2**32 - 1}.")
    widths = ["W{}A{}".format(*parse_widths(text)) for text in bits]
    combinations = itertools.product(seeds, widths, scope, method)
    found = [Case(name, width, where, images, seed) for seed, width, where, name in combinations]
    return [FULL_PRECISION, *dict.fromkeys(found)]


def parse_widths(text: str) -> tuple[int, int]:
    """Read "W4A4" as 4 and 4."""
    match = re.fullmatch(r"[wW]([2-8])[aA]([2-8])", text.strip())
    if match is None:
        raise MaqeeError(f"bits: {text!r} must be like W4A4, with 2 to 8 bits each.")
    return int(match[1]), int(match[2])


def settings_of(case: Case) -> QuantSettings:
    """What a scope means for a method.

    "authors" quantizes the classifier too, and the patch embedding: weights at the nominal bits; its input at 8 bits
    (RepQ) or float (ERQ). Zero points of reparameterised activations stay the means that the releases leave there.
    """
    weights, activations = parse_widths(case.bits)
    plain = QuantSettings(weight_bits=weights, act_bits=activations)
    if case.scope == "default":
        return plain
    patch = Bits(weights, None if case.method.startswith("erq") else 8)
    return replace(plain, patch=patch, classifier=Bits(weights, activations), integer_zeros=False)
