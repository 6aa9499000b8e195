"""bfloat16, and products of bytes, are tried in a child before they can end a run."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from maqee import processor
from maqee.errors import MaqeeError
from maqee.processor import (
    BYTES_TRIAL,
    TRIAL,
    VARIABLE,
    WITHOUT_AMX,
    check_bfloat16,
    check_reduced_precision,
    multiplies_bytes,
)
from maqee.training.runner import make_runner
from tests.helpers import run_python

pytestmark = pytest.mark.process

DIES = (sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
LIVES = (sys.executable, "-c", "pass")
FAILS = (sys.executable, "-c", "raise SystemExit(3)")
MISSING = ("no-such-program-anywhere",)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable, nothing remembered, before and after."""
    monkeypatch.setenv(VARIABLE, "")  # so that what a test sets is taken back
    monkeypatch.delenv(VARIABLE)
    check_bfloat16.cache_clear()
    yield
    check_bfloat16.cache_clear()


@pytest.fixture
def amx(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(
        "model name\t: Intel\nflags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8\n\nflags\t\t: fpu amx_tile\n"
    )
    return path


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text("model name\t: Another amx_tile\nflags\t\t: fpu avx2\n")
    return path


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not multiplied yet."""
    monkeypatch.setattr(processor, "instructions_in_use", lambda: "Intel AVX-512 with bfloat16 support")


def test_a_child_that_dies_caps_the_instructions(amx: Path, early: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_bfloat16(DIES, amx)
    assert os.environ[VARIABLE] == WITHOUT_AMX
    [line] = caplog.messages
    assert "SIGILL" in line
    assert f"{VARIABLE}={WITHOUT_AMX}" in line


@pytest.mark.parametrize("command", [LIVES, FAILS, MISSING], ids=["lives", "fails", "missing"])
def test_other_children_change_nothing(amx: Path, command: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    check_bfloat16(command, amx)
    assert VARIABLE not in os.environ
    assert not caplog.messages


def test_a_child_that_hangs_is_no_verdict(amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "SECONDS", 0.2)
    check_bfloat16((sys.executable, "-c", "import time; time.sleep(60)"), amx)
    assert VARIABLE not in os.environ


def test_without_amx_nothing_is_tried(plain: Path, tmp_path: Path) -> None:
    check_bfloat16(DIES, plain)
    check_bfloat16(DIES, tmp_path / "not there")
    assert VARIABLE not in os.environ


def test_the_users_choice_stands(amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ALL")
    check_bfloat16(DIES, amx)
    assert os.environ[VARIABLE] == "ALL"


def test_it_is_tried_once(amx: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = (sys.executable, "-c", f"open({str(mark)!r}, 'a').write('x')")
    check_bfloat16(command, amx)
    check_bfloat16(command, amx)
    assert mark.read_text() == "x"


def test_too_late_is_an_error_every_time(amx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "instructions_in_use", lambda: "Intel AVX-512 and Intel AMX with bfloat16 support")
    for _ in range(2):
        with pytest.raises(MaqeeError, match=r"set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 .* start again"):
            check_bfloat16(DIES, amx)
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("precision", "device", "asked"), [("bf16", "cpu", 1), ("fp32", "cpu", 0), ("bf16", "meta", 0)]
)
def test_only_bfloat16_on_the_processor_is_looked_at(
    precision: str, device: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(processor, "check_bfloat16", lambda command, cpuinfo: calls.append(command))
    check_reduced_precision(precision, torch.device(device))
    assert len(calls) == asked
    if device == "cpu":
        make_runner(precision, device)
        assert len(calls) == 2 * asked


@pytest.mark.parametrize("trial", [TRIAL, BYTES_TRIAL], ids=["bfloat16", "bytes"])
def test_the_trial_itself_has_no_mistake(trial: str) -> None:
    """It must not fail for another reason, which would pass for life."""
    environment = {**os.environ, VARIABLE: WITHOUT_AMX}
    assert subprocess.run([sys.executable, "-c", trial], env=environment, check=False).returncode == 0


BOOST = "Intel AVX-512 with Intel DL Boost"


@pytest.mark.parametrize(
    ("instructions", "trial", "expected"),
    [
        (BOOST, DIES, True),
        ("Intel AVX2", LIVES, False),
        ("", LIVES, False),
        (f"{BOOST} and Intel AMX with 8-bit integer support", LIVES, True),
        (f"{BOOST} and Intel AMX with 8-bit integer support", DIES, False),
    ],
    ids=["boost", "none", "unknown", "amx", "broken-amx"],
)
def test_where_bytes_are_multiplied(
    instructions: str, trial: tuple[str, ...], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "instructions_in_use", lambda: instructions)
    monkeypatch.setattr(processor, "BYTES_TRIAL", trial[-1])
    assert multiplies_bytes.__wrapped__() is expected


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors have other instructions")
@pytest.mark.parametrize(("before", "taken"), [("", True), ("torch.ones(8, 8) @ torch.ones(8, 8)", False)])
def test_the_variable_works_in_a_running_process_before_the_first_product(before: str, taken: bool) -> None:
    """Shown with a cap that is below what any processor of today has."""
    run_python(
        "import os, torch\n"
        "from maqee.processor import VARIABLE, instructions_in_use\n"
        "os.environ.pop(VARIABLE, None)\n"
        "torch.nn.Linear(8, 8)  # making weights is no product\n"
        f"{before}\n"
        "os.environ[VARIABLE] = 'SSE41'\n"
        "found = instructions_in_use()\n"
        f"assert found and ('SSE4.1' in found) == {taken}, found\n"
        "assert instructions_in_use() == found\n"
    )
