"""`maqee cost`: the paper's figures, a case worked out by hand, and a table that adds up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maqee.errors import MaqeeError
from maqee.models import load_backbone, save_backbone
from tests.helpers import invoke

# test-vit by hand: 16 patches and a class token of width 32, four blocks, ten classes.
PATCH = 16 * (3 * 8 * 8) * 32
LINEAR = 17 * (32 * 96 + 32 * 32 + 2 * 32 * 64)
ATTENTION = 2 * 17 * 17 * 32
CLASSIFIER = 32 * 10
FULL = 32 * 32


def report(*arguments: str) -> dict[str, Any]:
    result = invoke("cost", *arguments, "--json")
    assert result.exit_code == 0, result.output
    values: dict[str, Any] = json.loads(result.stdout)
    return values


PUBLISHED = [
    ("vit-base", 32, "none", 1.7985e13),
    ("vit-base", 4, "none", 3.983e11),
    ("vit-base", 4, "lgvit", 4.086e11),
    ("vit-large", 4, "none", 11.41e11),
    ("swin-base", 4, "none", 2.673e11),
    ("swin-base", 32, "none", 1.580e13),
]


@pytest.mark.parametrize(("model", "bits", "exits", "bops"), PUBLISHED)
def test_figures_of_the_paper(model: str, bits: int, exits: str, bops: float) -> None:
    values = report(model, "--weight-bits", str(bits), "--act-bits", str(bits), "--exits", exits)
    assert values["bops"] == pytest.approx(bops, rel=1e-3)
    assert values["bops"] == pytest.approx(sum(part["bops"] for part in values["parts"]), rel=1e-12)
    assert values["macs"] == pytest.approx(sum(part["macs"] for part in values["parts"]), rel=1e-12)


def test_every_part_by_hand() -> None:
    values = report("test-vit", "--weight-bits", "8", "--act-bits", "4")
    square = 17 * 32 * 32  # tokens x width x width
    blocks = [("qkv", 3 * square, 8 * 4), ("attention", ATTENTION, 4 * 4), ("projection", square, 8 * 4)]
    blocks += [("fc1", 2 * square, 8 * 4), ("fc2", 2 * square, 8 * 4)]
    assert sum(macs for kind, macs, _ in blocks if kind != "attention") == LINEAR
    expected = [("patch embedding", PATCH, PATCH * FULL)]
    expected += [(f"block {n} {kind}", macs, macs * bits) for n in (1, 2, 3, 4) for kind, macs, bits in blocks]
    expected += [("classifier", CLASSIFIER, CLASSIFIER * FULL)]
    assert [(part["name"], part["macs"], part["bops"]) for part in values["parts"]] == expected
    assert values["mean_exit"] == 4.0


def test_exit_mass_by_hand() -> None:
    """Exits after blocks 1, 2 and 3; half of the images leaves at the first, a quarter at the second."""
    arguments = ("test-vit", "--exits", "mlp", "--weight-bits", "8", "--act-bits", "4")
    values = report(*arguments, "--exit-mass", "0.5,0.25,0,0.25")
    blocks_run = 1 + 0.5 + 0.25 + 0.25
    heads_run = 1 + 0.5 + 0.25  # the third head is run by those who do not leave there
    fixed = PATCH * FULL + CLASSIFIER * FULL
    bodies = blocks_run * (LINEAR * 8 * 4 + ATTENTION * 4 * 4)
    heads = heads_run * CLASSIFIER * 8 * 4
    assert values["exit_blocks"] == [1, 2, 3, 4]
    assert values["bops"] == pytest.approx(fixed + bodies + heads, rel=1e-12)
    assert values["bops_without_heads"] == pytest.approx(fixed + bodies, rel=1e-12)
    macs = PATCH + blocks_run * (LINEAR + ATTENTION) + (heads_run + 1) * CLASSIFIER
    assert values["macs"] == pytest.approx(macs, rel=1e-12)
    assert values["mean_exit"] == 0.5 * 1 + 0.25 * 2 + 0.25 * 4
    never = report(*arguments)
    assert never == report(*arguments, "--exit-mass", "0,0,0,1")


def test_other_bits_and_sizes() -> None:
    plain = report("test-vit", "--weight-bits", "4", "--act-bits", "4")
    cheap = report("test-vit", "--weight-bits", "4", "--act-bits", "4", "--patch", "8/4", "--classifier", "2/3")
    saved = PATCH * (FULL - 8 * 4) + CLASSIFIER * (FULL - 2 * 3)
    assert plain["bops"] - cheap["bops"] == saved
    bits = ("--weight-bits", "4", "--act-bits", "4")
    assert report("test-vit", *bits, "--patch", "float", "--classifier", "32/32") == plain
    half = report("test-vit", "--weight-bits", "4", "--act-bits", "4", "--patch", "16/16")
    assert plain["bops"] - half["bops"] == PATCH * (FULL - 16 * 16)
    large = report("test-vit", "--image-size", "64")
    assert large["parts"][0]["macs"] == 4 * PATCH
    assert large["parts"][2]["macs"] == 2 * 65 * 65 * 32


@settings(max_examples=10)
@given(weight=st.integers(1, 32), act=st.integers(1, 32), shares=st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_leaving_early_never_costs_more(weight: int, act: int, shares: list[int]) -> None:
    shares = shares if any(shares) else [1, 1, 1, 1]
    mass = ",".join(repr(share / sum(shares)) for share in shares)
    bits = ("--weight-bits", str(weight), "--act-bits", str(act), "--exits", "lgvit")
    some, never = report("test-vit", *bits, "--exit-mass", mass), report("test-vit", *bits)
    assert some["bops"] <= never["bops"] * (1 + 1e-12)
    assert some["macs"] <= never["macs"] * (1 + 1e-12)
    reach = [part["reach"] for part in some["parts"] if part["kind"] == "attention"]  # one in every block
    assert reach == sorted(reach, reverse=True)
    assert sum(reach) == pytest.approx(some["mean_exit"], abs=1e-4)


def test_saved_model_costs_what_its_preset_costs(tmp_path: Path) -> None:
    save_backbone(load_backbone("test-swin"), tmp_path)
    arguments = ("--exits", "lgvit", "--weight-bits", "6", "--image-size", "48")
    assert report(str(tmp_path), *arguments) == report("test-swin", *arguments)


@pytest.mark.parametrize("exits", ["none", "lgvit"])
@pytest.mark.parametrize("model", ["vit-base", "swin-tiny", "test-deit"])
def test_table_adds_up(model: str, exits: str) -> None:
    arguments = ("cost", model, "--weight-bits", "4", "--act-bits", "8", "--exits", exits)
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["part", "bits", "reach", "MACs", "BOPs", "share"]
    row = re.compile(r"(?P<name>.+?) +\d+/\d+ +[\d.]+ +(?P<macs>\S+) +(?P<bops>\S+) +(?P<share>[\d.]+)%")
    rows = [match for line in lines if (match := row.fullmatch(line))]
    total = next(line.split() for line in lines if line.startswith("total "))
    values = report(*arguments[1:])
    assert [match["name"] for match in rows] == [part["name"] for part in values["parts"]]
    assert sum(float(match["macs"]) for match in rows) == pytest.approx(float(total[1]), rel=1e-3)
    assert sum(float(match["bops"]) for match in rows) == pytest.approx(float(total[2]), rel=1e-3)
    assert sum(float(match["share"]) for match in rows) == pytest.approx(100, abs=0.05 * len(rows))
    assert float(total[2]) == pytest.approx(values["bops"], rel=1e-4)
    without = [line.split()[-1] for line in lines if line.startswith("total without heads")]
    assert len(without) == (exits != "none")
    if without:
        heads = sum(float(match["bops"]) for match in rows if match["name"].startswith("exit "))
        assert float(without[0]) == pytest.approx(float(total[2]) - heads, rel=1e-3)


MISTAKES = [
    (("vit-bse",), "did you mean vit-base"),
    (("no/such/folder",), "no/such/folder does not exist"),
    (("test-vit", "--weight-bits", "0"), "Bit-widths go from 1 to 32, not 0"),
    (("test-vit", "--act-bits", "33"), "Bit-widths go from 1 to 32, not 33"),
    (("test-vit", "--exits", "lgvitt"), "did you mean lgvit"),
    (("test-vit", "--patch", "8/x"), "--patch: '8/x' is neither"),
    (("test-vit", "--patch", "²/8"), "--patch: '²/8' is neither"),
    (("test-vit", "--classifier", "/"), "--classifier: '/' is neither"),
    (("test-vit", "--classifier", "8/64"), "--classifier: '8/64' is neither"),
    (("test-vit", "--image-size", "33"), "image_size 33 is not a multiple of patch_size 8"),
    (("test-vit", "--image-size", "0"), "image_size"),
    (("test-vit", "--image-size", "-8"), "image_size"),
    (("test-vit", "--exit-mass", "a,b"), "--exit-mass 'a,b' must be numbers"),
    (("test-vit", "--exit-mass", ""), "--exit-mass '' must be numbers"),
    (("test-vit", "--exit-mass", "nan"), "must be shares from 0 to 1"),
    (("test-vit", "--exit-mass", "0.5,0.5"), "2 shares for 1 exits"),
    (("test-vit", "--exits", "mlp", "--exit-mass", "0.5,0.5"), "2 shares for 4 exits"),
    (("test-vit", "--exits", "mlp", "--exit-mass", "0.5,0.5,0.5,0.5"), "sum to 1"),
    (("test-vit", "--exits", "mlp", "--exit-mass", "1.5,-0.5,0,0"), "sum to 1"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_mistake(arguments: tuple[str, ...], words: str) -> None:
    result = invoke("cost", *arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, MaqeeError)
    assert words in str(result.exception)
    assert "MACs" not in result.output


@pytest.mark.parametrize(
    "arguments", [(), ("test-vit", "--weight-bits", "four"), ("test-vit", "--colour", "red")], ids=str
)
def test_misuse(arguments: tuple[str, ...]) -> None:
    assert invoke("cost", *arguments).exit_code == 2
