"""The words of a report, without its figures: what was asked and kept, promises, and mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maqee.apq import Budget, Expected
from maqee.apq.control.guarantee import Guarantee
from maqee.errors import MaqeeError
from maqee.io import write_json
from maqee.report.report_content import read_run
from maqee.report.report_words import asked, several_summary, summary, verdict
from maqee.report.write_report import write_report
from tests.apq.makers import make_trace
from tests.helpers import invoke
from tests.report.run_folders import make_plan, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "run")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time."""
    monkeypatch.setattr("maqee.report.write_report.FIGURES", ())


def test_examples_of_other_thresholds_are_not_shown(folder: Path) -> None:
    assert "<img" in write_report(folder).page.read_text()
    make_plan(make_trace(), thresholds=(0.9, 0.9, 0.9)).save(folder / "plan.json")
    text = write_report(folder).page.read_text()
    assert "no example images for these thresholds" in text
    assert "<img" not in text


def test_a_guarantee_is_spelled_out(tmp_path: Path) -> None:
    promise = Guarantee(
        method="ucb", loss="zero-one", epsilon=0.05, delta=0.1, n=300, thresholds=(0.95, 0.9, 2.0), never_exits=False,
        empirical_gap=0.01, empirical_risk=0.02, bound=0.04, p_value=None, statement="With probability at least 0.9.",
    )  # fmt: skip
    run = write_folder(tmp_path / "run", guarantee=promise, expected=None)
    text = write_report(run).page.read_text()
    assert "With probability at least 0.9." in text
    assert "ucb with 300 calibration images" in text
    assert "None was asked for" not in text
    assert "on the images that chose it" in summary(read_run(run))


def test_what_is_missed_is_said(tmp_path: Path) -> None:
    trace = make_trace()
    found = make_plan(trace)
    missed = make_plan(trace, history=(*found.history[:-1], found.history[0]))
    missed.save(tmp_path / "plan.json")
    assert verdict(read_run(tmp_path)) == "Missed by 1.00%: this is the nearest that was found."
    found.save(tmp_path / "plan.json")
    assert verdict(read_run(tmp_path)) == "Kept."
    trace.save(tmp_path / "trace.safetensors")  # with it the target is a number, and what is expected can be below it
    needed = trace.float_metric - 0.02
    assert found.expected is not None
    replace(found, expected=replace(found.expected, metric=needed - 0.0123)).save(tmp_path / "plan.json")
    assert "1.23 points less are expected" in verdict(read_run(tmp_path))
    replace(found, expected=replace(found.expected, metric=needed)).save(tmp_path / "plan.json")
    assert verdict(read_run(tmp_path)) == "Kept."
    write_json(tmp_path / "search.json", {"finished": False})
    assert "stopped early" in verdict(read_run(tmp_path))


def test_several_runs_in_a_sentence(tmp_path: Path) -> None:
    trace = make_trace()
    plain = Expected(0.8, 1e5, 2.0, 5, 0.01, 10.0)
    for name, metric, spent in (("good", 0.9, 2e5), ("cheap", 0.8, 1e5), ("best", 0.95, 0.5e5)):
        write_folder(tmp_path / name, trace, expected=replace(plain, metric=metric, bops=spent))
    good, cheap, best = (read_run(tmp_path / name) for name in ("good", "cheap", "best"))
    both = several_summary([good, cheap])
    assert both.startswith(
        "good has the highest score: accuracy 90.00% ± 1.00% on new images (expected), simulated, at "
    )
    assert ". cheap is the cheapest: accuracy 80.00%" in both
    assert several_summary([cheap, best]).endswith("; it is the cheapest, too.")
    dense = read_run(write_folder(tmp_path / "dense", make_trace(task="segmentation")))
    assert "none is called the best" in several_summary([good, dense])


def test_runs_that_cannot_be_drawn_together(folder: Path, tmp_path: Path) -> None:
    timed = write_folder(tmp_path / "timed", make_trace(exit_ms=(1.0, 2.0, 3.0, 4.0)))
    text = write_report([folder, timed], tmp_path / "both.html").page.read_text()
    assert "in different units" in text


def test_a_drop_is_also_said_as_a_number(tmp_path: Path) -> None:
    trace = make_trace()
    run = write_folder(tmp_path / "run", trace)
    assert asked(read_run(run)).endswith(
        f"full precision, on images that did not choose: {trace.float_metric - 0.02:.2%}"
    )
    make_plan(trace, budget=Budget()).save(run / "plan.json")
    assert asked(read_run(run)).endswith("nothing was asked)")  # nobody knows what could be reached
    write_json(run / "search.json", {"finished": True, "reachable": 0.75})
    assert asked(read_run(run)).endswith("nothing was asked): 74.00%")


@pytest.mark.parametrize(
    ("runs", "out", "hint"),
    [
        ([], None, "nothing to report"),
        (["nowhere"], None, "nowhere is no folder"),
        (["empty"], None, r"empty holds no plan\.json"),
        (["run"], "page.pdf", r"must be the name of an HTML file"),
        (["run"], "run", r"must be the name of an HTML file"),
    ],
)
def test_mistakes(runs: list[str], out: str | None, hint: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "run")
    with pytest.raises(MaqeeError, match=hint):
        write_report([tmp_path / name for name in runs], None if out is None else tmp_path / out)


def test_a_plan_and_a_trace_that_do_not_belong_together(tmp_path: Path) -> None:
    run = write_folder(tmp_path / "run")
    make_trace(model="another").save(run / "trace.safetensors")
    with pytest.raises(MaqeeError, match="cannot be compared"):
        write_report(run)


def test_the_command(folder: Path, tmp_path: Path) -> None:
    result = invoke("report", str(folder), "--out", str(tmp_path / "page.html"))
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "page.html") in result.output
    missing = invoke("report", str(tmp_path / "nowhere"))
    assert missing.exit_code == 2
