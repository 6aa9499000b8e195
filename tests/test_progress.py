"""Progress in a log file and on a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from maqee import progress
from maqee.progress import phase, steps


def use_console(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> StringIO:
    written = StringIO()
    console = Console(file=written, force_terminal=terminal, width=80, _environ={})
    monkeypatch.setattr(progress, "console", console)
    return written


def test_a_log_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = use_console(monkeypatch, terminal=False)
    with steps("searching", 26) as bar:
        assert log.getvalue() == "searching 0/26\n"
        bar.update(1, "soon after")  # half a minute has not passed
        assert log.getvalue() == "searching 0/26\n"
        bar.update(26, "done")
    assert log.getvalue() == "searching 0/26\nsearching 26/26 done\n"


def test_a_log_goes_on_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    log = use_console(monkeypatch, terminal=False)
    clock = iter((0.0, 20.0, 28.0, 32.0, 40.0, 64.0))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with steps("training", 10) as bar:
        for done in range(1, 6):
            bar.update(done, "loss 1" if done < 4 else "")
    # from the first report on: 12 s for two steps, 7 are left; 44 s for four, 5 are left
    assert log.getvalue().splitlines() == [
        "training 0/10",
        "training 3/10 loss 1, 42 s left",
        "training 5/10 55 s left",
    ]


def test_a_log_names_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    log = use_console(monkeypatch, terminal=False)
    with phase("fitting [grids]"):  # not markup
        assert log.getvalue() == "fitting [grids]\n"
    assert log.getvalue() == "fitting [grids]\n"


def test_a_terminal_has_bars_and_spinners(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = use_console(monkeypatch, terminal=True)
    with phase("fitting grids"):
        pass
    assert "fitting grids" in screen.getvalue()
    assert "0/26" not in screen.getvalue()
    with steps("searching", 26) as bar:
        bar.update(3, "so far")
    assert "3/26" in screen.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_silence_on_demand(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = use_console(monkeypatch, terminal)
    with phase("fitting grids", enabled=False), steps("searching", 26, enabled=False) as bar:
        bar.update(26)
    assert screen.getvalue() == ""


def test_an_error_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    use_console(monkeypatch, terminal=True)
    with pytest.raises(KeyError), phase("fitting grids"):
        raise KeyError
    with phase("the terminal is free again"):
        pass
