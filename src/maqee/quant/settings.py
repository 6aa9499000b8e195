"""What is to be quantized, and how finely."""

from __future__ import annotations

import re
from dataclasses import dataclass

from maqee.errors import MaqeeError
from maqee.quant.grids import check_bits
from maqee.quant.places import Place, Role

Width = int | None  # None is float


@dataclass(frozen=True)
class Bits:
    """Weight and activation bits of a layer; None is float."""

    weights: Width
    activations: Width

    def __str__(self) -> str:
        if self.weights is None and self.activations is None:
            return "float"
        return "/".join("float" if bits is None else str(bits) for bits in (self.weights, self.activations))


FLOAT = Bits(None, None)


@dataclass(frozen=True, kw_only=True)
class QuantSettings:
    """Bits of every part of a model.

    Attributes:
        weight_bits: of the blocks' linear layers, to begin with.
        act_bits: of all activations in blocks, heads and mergings, and of both attention products.
        widths: weight bits that what can be switched (`switched`) can have afterwards, beside `weight_bits`.
        act_widths: activation bits, likewise, beside `act_bits`.
        switched: parts whose widths can be changed afterwards.
        patch: bits of the patch embedding; float by default, as the paper counts it.
        classifier: bits of the final classifier; likewise.
        heads: bits of exit heads; (weight_bits, act_bits) when left out.
        overrides: (pattern, bits) by layer name, a regular expression; the first match wins.
        integer_zeros: round the zero point of reparameterised activations, so that codes can be executed. Off, it is
            the mean that the RepQ and ERQ releases leave there.
        common_steps: let ERQ's two groups of columns have whole multiples of a common step, up to 5 bits, so that one
            product does for both (`maqee.quant.common_steps`). Off, their steps are those of the release.
    """

    weight_bits: int = 4
    act_bits: int = 4
    widths: tuple[int, ...] = ()
    act_widths: tuple[int, ...] = ()
    switched: tuple[Role, ...] = ("block",)
    patch: Bits = FLOAT
    classifier: Bits = FLOAT
    heads: Bits | None = None
    overrides: tuple[tuple[str, Bits], ...] = ()
    integer_zeros: bool = True
    common_steps: bool = False

    def __post_init__(self) -> None:
        for name in ("weight_bits", "act_bits"):
            _check_width(name, getattr(self, name))
        for name in ("widths", "act_widths"):
            for width in getattr(self, name):
                _check_width(name, width)
        for name in ("patch", "classifier", "heads"):
            _check_pair(name, getattr(self, name) or FLOAT)
        for pattern, bits in self.overrides:
            _check_pair(f"Override {pattern!r}", bits)
        for pattern, _ in self.overrides:
            try:
                re.compile(pattern)
            except re.error as error:
                raise MaqeeError(f"Override {pattern!r} is no regular expression ({error}).") from error

    @property
    def all_widths(self) -> tuple[int, ...]:
        """Weight bits that are fitted for everything that can be switched."""
        return tuple(sorted({self.weight_bits, *self.widths}))

    @property
    def all_act_widths(self) -> tuple[int, ...]:
        """Activation bits that are fitted for everything that can be switched."""
        return tuple(sorted({self.act_bits, *self.act_widths}))

    def asked(self, place: Place) -> Bits:
        """Bits of a layer (of an attention product only the activations matter)."""
        for pattern, bits in self.overrides:
            if re.search(pattern, place.name):
                return bits
        usual = Bits(self.weight_bits, self.act_bits)
        return {"patch": self.patch, "classifier": self.classifier, "head": self.heads or usual}.get(place.role, usual)

    def overridden(self, place: Place) -> bool:
        """Whether an override fixes the layer's bits."""
        return any(re.search(pattern, place.name) for pattern, _ in self.overrides)

    def switches(self, place: Place) -> bool:
        """Whether the widths of a layer can be changed afterwards."""
        return place.role in self.switched and self.asked(place) != FLOAT and not self.overridden(place)


def parse_override(text: str) -> tuple[str, Bits]:
    """Read "PATTERN=BITS", the bits as `parse_bits` has them."""
    pattern, equals, value = text.rpartition("=")
    if not equals or not pattern:
        raise MaqeeError(f"Override {text!r} must be PATTERN=BITS, for example 'mlp\\.fc2=6/4' or 'heads\\.0=float'.")
    return pattern, parse_bits(value, f"Override {text!r}")


def parse_bits(text: str, what: str) -> Bits:
    """Read "8/8", "4/float", "4" or "float".

    32 bits are float too. One number is for the weights and keeps 4-bit activations. Which widths a grid can have is
    for `QuantSettings` to say; what is only counted (`maqee.cost`) has others.

    Args:
        text: what the user wrote.
        what: where, for the message.
    """
    if text == "float":
        return FLOAT
    weights, slash, activations = text.partition("/")
    given = [weights, activations if slash else "4"]
    if not all(part == "float" or re.fullmatch("[1-9]|[12][0-9]|3[0-2]", part) for part in given):
        raise MaqeeError(f"{what}: {text!r} is neither WEIGHT/ACTIVATION bits such as 8/8, nor one number, nor float.")
    return Bits(*(None if part in ("float", "32") else int(part) for part in given))


def _check_width(name: str, width: int) -> None:
    try:
        check_bits(width)
    except MaqeeError as error:
        raise MaqeeError(f"{name}: {width!r} is impossible, a grid has 2 to 8 bits.") from error


def _check_pair(name: str, bits: Bits) -> None:
    for width in (bits.weights, bits.activations):
        if width is not None:
            _check_width(name, width)
