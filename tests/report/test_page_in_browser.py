"""The page in a real browser: no complaint in the console, nothing blank, nothing wider than a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maqee.report.write_report import FIGURES, write_report
from maqee.report.write_table_report import TABLE_FIGURES
from tests.apq.makers import make_trace
from tests.report.run_folders import write_folder

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PHONE, DESK = 390, 1280
DIGITS = Path(__file__).parents[2] / "results" / "tables" / "digits.json"
DRAWINGS = {"run": len(FIGURES), "runs": 2 * len(FIGURES) + 2, "table": len(TABLE_FIGURES)}
# Measures the page from inside: its width, and the height of every drawing.
RULER = """<script>
const heights = [...document.querySelectorAll("svg")].map(svg => Math.round(svg.getBoundingClientRect().height));
parent.document.title = `wide ${document.documentElement.scrollWidth} high ${heights.join(" ")}`;
</script></body>"""

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"there is no browser to look at the page with ({', '.join(BROWSERS)})")
    return found


@pytest.fixture(scope="module", params=["run", "runs", "table"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def page(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(kind)
    if kind == "table":
        return write_report(DIGITS, folder / "table.html").page
    run = write_folder(folder / "run")
    others = [write_folder(folder / "a-run-with-a-long-name", make_trace(seed=1))] if kind == "runs" else []
    return write_report([run, *others], folder / "page.html").page


def visit(browser: str, page: Path, width: int, *more: str) -> tuple[str, list[str]]:
    """What the browser prints, and what stands in its console."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr")
    command = [browser, *flags, f"--user-data-dir={page.parent / f'profile-{width}'}", f"--window-size={width},1600"]
    done = subprocess.run([*command, *more, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize(
    ("width", "dark"), [(PHONE, False), (DESK, False), (DESK, True)], ids=["phone", "desk", "dark"]
)
def test_it_is_quiet_and_not_blank(browser: str, page: Path, width: int, dark: bool, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    scheme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    _, console = visit(browser, page, width, f"--screenshot={picture}", *scheme)
    assert console == []
    with Image.open(picture) as seen:
        assert seen.size == (width, 1600)
        grey = np.asarray(seen.convert("L")).astype(float)
    assert (np.median(grey) < 60) == dark
    for part in np.array_split(grey, 4):
        assert part.std() > 5


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_figure_shows_and_nothing_sticks_out(
    browser: str, page: Path, kind: str, width: int, tmp_path: Path
) -> None:
    measured = tmp_path / "measured.html"
    text = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text())  # which forbids scripts, the ruler too
    inner = escape(text.replace("</body>", RULER))
    # In a frame, because a window of this browser is never narrower than 500 pixels.
    measured.write_text(
        f'<!doctype html><title></title><iframe width="{width}" height="900" srcdoc="{inner}"></iframe>'
    )
    printed, console = visit(browser, measured, DESK, "--dump-dom")
    assert console == []
    found = re.search(r"<title>wide (\d+) high ([\d ]+)</title>", printed)
    assert found is not None
    assert int(found[1]) <= width
    heights = [int(height) for height in found[2].split()]
    assert len(heights) == DRAWINGS[kind]
    assert min(heights) > 80


def test_complaints_would_be_noticed(browser: str, tmp_path: Path) -> None:
    policy = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"
    broken = tmp_path / "broken.html"
    broken.write_text(f"<html><head>{policy}</head><body><img src='data:,'></body></html>")
    assert visit(browser, broken, DESK, "--dump-dom")[1] != []
