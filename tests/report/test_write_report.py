"""The page: everything is in it, nothing comes from elsewhere, equal runs give equal bytes, and lacks are said."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maqee.apq import Budget, Plan
from maqee.io import read_json
from maqee.report.write_report import FIGURES, write_report
from tests.apq.makers import make_trace
from tests.helpers import FIXTURES
from tests.report.page_parser import Page
from tests.report.run_folders import write_folder

pytestmark = pytest.mark.slow  # drawing takes seconds

NAMES = ("frontier", "expected", "exits", "widths", "thresholds", "flips", "risks", "history")
SECTIONS = ("asked", "examples", "bits", "guarantee", "use", "settings")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("runs") / "my run & co")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return write_report(folder).page.read_text()


def test_everything_is_there(folder: Path, text: str) -> None:
    page = Page(text)
    assert {*NAMES, *SECTIONS} <= set(page.ids)
    assert page.tags["svg"] == len(NAMES) == len(FIGURES)
    assert text.count('role="img"') == len(NAMES)
    for name in NAMES:
        assert re.search(rf'<title id="{name}-title">[^<]{{20,}}</title>', text), name
    assert page.tags["caption"] == page.tags["table"] == 3
    plan = Plan.load(folder / "plan.json")
    assert plan.expected is not None
    for words in (
        f"{plan.got.metric:.2%}",
        f"{plan.expected.metric:.2%} ± 1.20%",
        "at most 2.00% below full precision",
    ):
        assert words in text
    assert text.count("imulated") > 10
    assert "my run &amp; co" in text
    assert "maqee predict &#39;my run &amp; co&#39; pictures/" in text


@pytest.mark.parametrize("at_full_depth", [False, True])
def test_heads_with_widths_of_their_own(tmp_path: Path, text: str, at_full_depth: bool) -> None:
    trace = make_trace()
    heads = tuple((3 + number % 2, 5) for number in range(trace.exits + at_full_depth))
    trace = trace.at_bits(replace(trace.bits, heads=heads))
    page = write_report(write_folder(tmp_path / "heads", trace)).page.read_text()
    first = trace.exit_blocks[0]
    assert f"e{first} is the head of the exit after block {first}." in page
    assert "Of exit heads: 3/5, 4/5" in page
    assert "Of exit heads" not in text


def test_nothing_comes_from_elsewhere(text: str) -> None:
    page = Page(text)
    assert page.tags["script"] == page.tags["iframe"] == 0
    assert {link for link in page.links if not link.startswith(("#", "data:"))} == set()
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in text
    assert "/somewhere/far" not in text  # of this machine


def test_ids_are_unique_and_references_lead_somewhere(text: str) -> None:
    page = Page(text)
    assert [name for name, count in page.ids.items() if count > 1] == []
    wanted = {link[1:] for link in page.links if link.startswith("#")} | set(re.findall(r"url\(#([^)]+)\)", text))
    wanted |= set(re.findall(r'aria-labelledby="([^"]+)"', text))
    assert wanted <= set(page.ids)


def test_colours_follow_the_page(text: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    used = set(re.findall(r"#[0-9a-f]{6}\b", drawings))
    assert used == set()  # all by name: a fixed colour would be unreadable in the dark
    assert {"--ink", "--blue", "--orange"} <= set(re.findall(r"var\((--[a-z]+)\)", drawings))
    defined = re.findall(r"(--[a-z]+):", text)
    assert all(defined.count(name) == 2 for name in set(re.findall(r"var\((--[a-z]+)\)", text)))  # light and dark
    assert "@media print" in text


def test_equal_runs_give_equal_bytes(folder: Path, text: str, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / folder.name)
    first = {path.name: path.read_bytes() for path in (folder / "report").iterdir()}
    shutil.rmtree(copy / "report")
    again = write_report(copy)
    assert again.page.read_text() == text
    assert {path.name: path.read_bytes() for path in again.figures} == first
    assert not re.search(r"\b20\d\d-\d\d-\d\d", text)
    assert len(text) < 2_000_000


@pytest.mark.usefixtures("text")
def test_figures_as_files(folder: Path) -> None:
    written = sorted((folder / "report").iterdir())
    assert [path.name for path in written] == sorted(f"{name}.{kind}" for name in NAMES for kind in ("svg", "png"))
    for path in written:
        if path.suffix == ".svg":
            assert "<text" in path.read_text()  # words stay words
            assert "var(--" not in path.read_text()
        else:
            with Image.open(path) as picture:
                assert picture.width == 720
                assert np.asarray(picture.convert("L")).std() > 10


def test_examples(folder: Path, text: str) -> None:
    page = Page(text)
    kept = read_json(folder / "examples.json")["examples"]
    assert len(page.images) == len(kept) > 12
    assert all(image["alt"] for image in page.images)
    assert "cat &lt;1&gt;" in text
    assert "is dog &amp; co" in text


def test_a_folder_with_the_plan_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(folder / "plan.json", tmp_path / "run")
    text = write_report(tmp_path / "run").page.read_text()
    page = Page(text)
    assert page.tags["svg"] == 5  # frontier, expected, exits, widths, history
    assert text.count("The folder has no trace") == 3
    assert "BOPs an image" in text


def test_a_run_of_an_older_version(tmp_path: Path) -> None:
    copy = shutil.copytree(FIXTURES / "compressed_by_0.1.0", tmp_path / "older")
    text = write_report(copy).page.read_text()
    assert Page(text).tags["svg"] == len(NAMES)
    assert "the least J" in text
    assert "bits of weights on average" in text


def test_a_model_without_exits(tmp_path: Path) -> None:
    run = write_folder(tmp_path / "plain", make_trace(exit_blocks=(4,)), thresholds=())
    text = write_report(run).page.read_text()
    assert Page(text).tags["svg"] == 5
    assert "every image runs to full depth" in text
    assert "The model has no exits" in text


def test_other_tasks_have_their_own_scores(tmp_path: Path) -> None:
    trace = make_trace(task="segmentation")
    run = write_folder(tmp_path / "run", trace, budget=Budget(max_bops=1e5))
    text = write_report(run).page.read_text()
    assert "image IoU" in text
    assert "accuracy" not in re.sub(r"What accuracy costs", "", text)


def test_measured_time(tmp_path: Path) -> None:
    trace = make_trace(exit_ms=(1.0, 2.0, 3.0, 4.0))
    text = write_report(write_folder(tmp_path / "run", trace)).page.read_text()
    assert "milliseconds an image" in text
    assert "ms an image (measured" in text


def test_several_runs(folder: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "my run & co", make_trace(seed=1))
    written = write_report([folder, other], tmp_path / "both.html")
    text = written.page.read_text()
    page = Page(text)
    assert page.tags["svg"] == 2 * len(NAMES) + 2
    assert {"frontier", "widths"} <= set(page.ids)
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "2 runs side by side" in text
    assert "has the highest score: accuracy" in text
    assert text.count("<td>Kept") == 2
    assert written.to_json() == {"page": str(written.page), "figures": [str(path) for path in written.figures]}
    assert {path.parent for path in written.figures} == {tmp_path / "both"}
    assert len(set(written.figures)) == 2 * (2 * len(NAMES) + 2)


def test_other_plans_of_the_search_are_drawn(tmp_path: Path) -> None:
    run = write_folder(tmp_path / "run")
    write_folder(run / "frontier" / "drop-0.0100", thresholds=(0.8, 0.8, 0.8))
    assert "other plans (frontier/)" in write_report(run).page.read_text()
