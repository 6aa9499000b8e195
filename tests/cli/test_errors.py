"""Errors name options on the command line, and parameters in the library."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
import torch
import typer

from maqee import cli
from maqee.cli.errors import OPTIONS, translate
from maqee.compression.compress_config import config_keys
from tests.helpers import save_digits_model

SOURCE = Path(cli.__file__).parents[1]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("min_metric: 0.9 cannot be met.", "--min-accuracy: 0.9 cannot be met."),
        ("average_bits: 2 cannot be met.", "--avg-bits: 2 cannot be met."),
        ("recovery_steps: -5 must be at least 0.", "--recover: -5 must be at least 0."),
        ("search.recovery_steps: -5 must be at least 0.", "--recover-swaps: -5 must be at least 0."),
        ("options.risk.epsilon is missing.", "--epsilon is missing."),
        ("max_bops and min_metric: give one of them.", "--max-bops and --min-accuracy: give one of them."),
        ("digits has 10 images: fit on fewer (fit_images).", "digits has 10 images: fit on fewer (--fit-images)."),
        ("frontier: leave out max_drop and min_metric.", "--frontier: leave out --max-drop and --min-accuracy."),
        ("bit_min and bit_max: 6 and 3 must ascend.", "--weight-range: 6 and 3 must ascend."),
        ("max_swaps: -1 must be a number from 0 up.", "--max-moves: -1 must be a number from 0 up."),
        ("device: 'gpu' is no device.", "--device: 'gpu' is no device."),
        # What only looks like a parameter stays.
        ("runs/x/min_metric.json: damaged.", "runs/x/min_metric.json: damaged."),
        ("a.yaml: search.alpha: 2 must be from 0 to 1.", "a.yaml: search.alpha: 2 must be from 0 to 1."),
        ("'max_drop=2': budget.max_drop: 2 must be ...", "'max_drop=2': budget.max_drop: 2 must be ..."),
        ("Unknown method 'max_drop'.", "Unknown method 'max_drop'."),
        ("The model has (3, 4) exits (samples are few).", "The model has (3, 4) exits (samples are few)."),
    ],
)
def test_translation(message: str, shown: str) -> None:
    assert translate(message) == shown


def options_of_commands() -> set[str]:
    found: set[str] = set()
    pending = [typer.main.get_command(cli.app)]
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        found |= {option for parameter in command.params for option in parameter.opts}
    return found


def test_every_option_in_the_table_exists() -> None:
    assert set(OPTIONS.values()) <= options_of_commands()


def test_every_dotted_key_in_the_table_exists() -> None:
    assert {key for key in OPTIONS if "." in key} <= set(config_keys())


def test_library_errors_name_no_options() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        if path.is_relative_to(SOURCE / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("MaqeeError", "suggest"):
                words = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found = [text for text in words if isinstance(text, str) and re.search(r"(?<![\w-])--[a-z]", text)]
                wrong += [f"{path.name}: {text}" for text in found]
    assert wrong == []


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["maqee", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    code = stop.value.code
    return code if isinstance(code, int) else 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bits", "weights", "--avg-bits", "2"), "error: --avg-bits: 2.0 cannot be met with 3 to 6 bits"),
        (("--set", "average_bits=5"), "where weights alone are chosen (--bits); ask for a cost instead (--max-bops)."),
        (("--bits", "all"), "error: --bits: 'all' must be 'both' or 'weights'."),
        (("--grain", "head"), "error: --grain: 'head' must be 'layer' or 'block'."),
        (("--search-bits", "heads"), "error: --search-bits: 'heads' must be 'blocks', 'blocks+heads' or 'all'."),
        (("--weight-range", "7-5"), "error: --weight-range: 7 and 5 must ascend"),
        (("--weight-range", "3-9"), "error: --weight-range: 9 is impossible"),
        (("--act-range", "1-4"), "error: --act-range: 1 is impossible"),
        (("--target-on", "test"), "error: --target-on: 'test' must be 'expected' or 'calibration'."),
        (("--objective", "best"), "error: --objective: 'best' must be 'direct' or 'paper'."),
        (("--like", "4"), "error: --like: '4' must be uniform widths such as W4A4."),
        (("--recover-swaps", "2"), "error: --recover-swaps: training after every change of bits is only there"),
        (("--max-moves", "-1"), "Invalid value for '--max-moves'"),
        (("--min-accuracy", "2"), "error: --min-accuracy: 2.0 must be from 0 to 1."),
        (("--min-accuracy", "0.9", "--max-drop", "0.1"), "error: --min-accuracy and --max-drop: give one of them"),
        (("--fit-images", "999"), "(--fit-images)"),
        (("--epsilon", "0.1"), "error: --risk is missing."),
        (("--risk", "crc"), "error: --epsilon is missing."),
        (("--risk", "crc", "--epsilon", "5"), "error: --epsilon: 5.0, the tolerated gap, must lie between 0 and 1."),
        (("--lr", "0"), "error: --lr: 0.0 must be more than 0."),
        (("--exit-weights", "bold"), "error: --exit-weights: 'bold' must be 'mass' or 'depth'."),
        (("--patch", "4/4/4"), "error: --patch: '4/4/4' is neither"),
        (("--patch", "9/9"), "error: --patch: 9 is impossible, a grid has 2 to 8 bits."),
        (("--bits", "weights", "--solver", "anneal"), "error: --solver: 'anneal' is not one of coordinate, exact."),
        (("--device", "gpu"), "error: --device: 'gpu' is no device"),
        (("--recover", "-5"), "Invalid value for '--recover'"),
        (("--batch", "0"), "Invalid value for '--batch'"),
        (("--seed", "-1"), "Invalid value for '--seed'"),
        (
            ("--set", "recovery.warmup=7"),
            "error: 'recovery.warmup=7': options.recovery.warmup: 7.0 must be from 0 to 1",
        ),
    ],
)
def test_what_a_user_reads(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run = save_digits_model(tmp_path / "model")
    code = run_main(monkeypatch, "compress", str(run), "--data", "digits", "--out", str(tmp_path / "out"), *arguments)
    shown = capsys.readouterr()
    assert code == 2
    assert words in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert not (tmp_path / "out").exists()


def test_a_full_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 228.00 MiB. GPU 0 has a total capacity of")

    monkeypatch.setattr("maqee.compression.compress", full)
    run = save_digits_model(tmp_path / "model")
    assert run_main(monkeypatch, "compress", str(run), "--data", "digits", "--out", str(tmp_path / "out")) == 2
    shown = capsys.readouterr().err
    assert "error: The GPU ran out of memory: end other programs on it" in shown
    assert "Traceback" not in shown
