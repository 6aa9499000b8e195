"""The commands as a person uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers import invoke, run_python

TINY = {
    "name": "tiny",
    "model": {"source": "vit-digits"},
    "data": {"name": "digits"},
    "exits": {"scheme": "mlp", "positions": [2, 4]},
    "stages": [
        {"kind": "finetune", "epochs": 0.1, "batch_size": 32, "lr": 0.001},
        {"kind": "classifier-wise", "epochs": 0.1, "batch_size": 32, "lr": 0.001},
    ],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    result = invoke("train", str(folder / "tiny.yaml"), "--out", str(folder / "out"), "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "2-classifier-wise" in result.output
    return folder / "out"


@pytest.mark.trains
def test_eval_writes_figures_with_their_circumstances(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    result = invoke("eval", str(run), "--out", str(out), "--device", "cpu")
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    assert [row["block"] for row in figures["exits"]] == [2, 4, 8]
    assert figures["images"] == 360
    assert figures["policies_are"] == "simulated"
    assert {"versions", "hardware"} <= set(figures["environment"])
    assert figures["policies"][-1]["accuracy"] == figures["exits"][-1]["accuracy"]
    assert "simulated" in result.output


@pytest.mark.trains
def test_eval_of_a_single_stage(run: Path) -> None:
    result = invoke("eval", str(run), "--stage", "1-finetune", "--split", "calibration", "--device", "cpu")
    assert result.exit_code == 0
    assert "digits calibration" in result.output


@pytest.mark.trains
@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "nowhere"),
        ("eval", "{run}", "--split", "train"),
        ("eval", "{run}", "--stage", "9-none"),
        ("train", "nowhere.yaml"),
        ("train", "unknown-recipe"),
        ("cost",),
        ("cost", "vit-base", "--weight-bits", "many"),
    ],
)
def test_mistakes_exit_with_code_2(run: Path, arguments: tuple[str, ...]) -> None:
    assert invoke(*(argument.format(run=run) for argument in arguments)).exit_code == 2


@pytest.mark.process
def test_error_is_one_sentence_without_traceback() -> None:
    command = [sys.executable, "-m", "maqee", "cost", "vit-bse"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "did you mean vit-base" in done.stderr
    assert "Traceback" not in done.stderr


def test_ls_names_everything() -> None:
    output = invoke("ls").output
    for name in ("vit-base", "global-s2", "erq", "cifar100", "lgvit-heads", "digits"):
        assert name in output


@pytest.mark.process
def test_help_is_quick_and_light() -> None:
    code = (
        "import sys, maqee, maqee.cli\n"
        "heavy = [m for m in ('torch', 'transformers', 'onnx', 'accelerate', 'scipy') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "import torch\n"
        "maqee.load_backbone\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert 'transformers' not in sys.modules and 'accelerate' not in sys.modules\n"
    )
    run_python(code)
