"""What is asked of each part: the defaults, overrides, and text a person writes."""

from __future__ import annotations

import pytest

from maqee.errors import MaqeeError
from maqee.quant import Bits, QuantSettings
from maqee.quant.places import Place, Role
from maqee.quant.settings import FLOAT, parse_bits, parse_override


def place(name: str, role: Role = "block") -> Place:
    return Place(name, role, 1 if role == "block" else 0, "", False)


QKV, PATCH = place("blocks.0.attn.qkv"), place("embedding.patch", "patch")
CLASSIFIER, HEAD, MERGE = place("head.linear", "classifier"), place("heads.0.linear", "head"), place("m", "merge")


def test_defaults_are_the_papers() -> None:
    settings = QuantSettings()
    asked = [settings.asked(part) for part in (QKV, PATCH, CLASSIFIER, HEAD, MERGE)]
    assert asked == [Bits(4, 4), FLOAT, FLOAT, Bits(4, 4), Bits(4, 4)]
    assert settings.all_widths == (4,)
    assert settings.integer_zeros


def test_every_part_has_its_own_bits() -> None:
    settings = QuantSettings(
        weight_bits=5, act_bits=6, widths=(3, 4, 6), patch=Bits(4, 8), classifier=Bits(8, 8), heads=Bits(7, 7)
    )
    asked = [settings.asked(part) for part in (QKV, PATCH, CLASSIFIER, HEAD, MERGE)]
    assert asked == [Bits(5, 6), Bits(4, 8), Bits(8, 8), Bits(7, 7), Bits(5, 6)]
    assert settings.all_widths == (3, 4, 5, 6)


def test_the_first_override_that_matches_wins() -> None:
    settings = QuantSettings(overrides=((r"blocks\.0\.", Bits(8, 8)), ("qkv", FLOAT), (r"patch$", Bits(2, 3))))
    assert settings.asked(QKV) == Bits(8, 8)
    assert settings.asked(place("blocks.1.attn.qkv")) == FLOAT
    assert settings.asked(place("blocks.1.attn.proj")) == Bits(4, 4)
    assert settings.asked(PATCH) == Bits(2, 3)
    assert settings.overridden(QKV)
    assert not settings.overridden(CLASSIFIER)


@pytest.mark.parametrize(
    "changes",
    [
        {"weight_bits": 1},
        {"act_bits": 9},
        {"widths": (3, 12)},
        {"patch": Bits(4, 16)},
        {"classifier": Bits(0, 4)},
        {"heads": Bits(4, 1)},
        {"overrides": (("qkv", Bits(4, 10)),)},
    ],
)
def test_widths_that_no_grid_has(changes: dict[str, object]) -> None:
    with pytest.raises(MaqeeError, match="2 to 8 bits"):
        QuantSettings(**changes)  # type: ignore[arg-type]


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(MaqeeError, match="no regular expression"):
        QuantSettings(overrides=(("(qkv", FLOAT),))


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("4", Bits(4, 4)),
        ("6", Bits(6, 4)),
        ("8/8", Bits(8, 8)),
        ("4/float", Bits(4, None)),
        ("float/8", Bits(None, 8)),
        ("float", FLOAT),
        ("32/32", FLOAT),
        ("4/32", Bits(4, None)),
        ("16/16", Bits(16, 16)),
    ],
)
def test_bits_as_text(text: str, bits: Bits) -> None:
    assert parse_bits(text, "patch") == bits
    assert parse_override(rf"mlp\.fc2={text}") == (r"mlp\.fc2", bits)


def test_bits_are_shown_as_they_are_read() -> None:
    for bits in (Bits(4, 8), Bits(4, None), Bits(None, 8), FLOAT):
        assert parse_bits(str(bits), "") == bits


@pytest.mark.parametrize("text", ["", "four", "4/", "/4", "0", "33", "4/64", "4/4/4", "-4", "4.0", "²/8", "04"])
def test_text_that_means_no_bits(text: str) -> None:
    with pytest.raises(MaqeeError, match="patch: "):
        parse_bits(text, "patch")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"weight_bits": 1}, "weight_bits: "),
        ({"widths": (3, 9)}, "widths: "),
        ({"patch": Bits(8, 16)}, "patch: "),
        ({"heads": Bits(1, None)}, "heads: "),
        ({"overrides": (("fc2", Bits(4, 9)),)}, "Override 'fc2': "),
    ],
)
def test_a_wrong_width_is_named(changes: dict[str, object], name: str) -> None:
    with pytest.raises(MaqeeError, match=name):
        QuantSettings(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["qkv", "=4", "4"])
def test_overrides_without_pattern_or_bits(text: str) -> None:
    with pytest.raises(MaqeeError, match="must be PATTERN=BITS"):
        parse_override(text)


def test_a_pattern_may_hold_an_equals_sign() -> None:
    assert parse_override("(?=qkv)=4") == ("(?=qkv)", Bits(4, 4))
