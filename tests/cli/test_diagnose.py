"""`maqee diagnose`: the theorems hold on a real compressed model, and arrays that break them are an error."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maqee.apq import Trace, risk_of_blocks
from maqee.apq.theory.error import BlockErrors, accumulated_error
from maqee.data import eval_batches, open_data
from maqee.evaluation import diagnose as library
from maqee.evaluation.diagnose import States, measure_states, searched_images
from maqee.evaluation.record import evaluation_batch
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.quant import QuantSettings, quantize
from maqee.runs import TRACE
from maqee.runtime import load
from maqee.tasks import tasks
from tests.helpers import FIXTURES, invoke, load_miniature

pytestmark = pytest.mark.trains


@pytest.fixture(scope="module")
def model() -> Path:
    return FIXTURES / "digits"


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "compressed"
    arguments = (
        "--method",
        "rtn",
        "--samples",
        "80",
        "--bits",
        "weights",
        "--objective",
        "paper",
        "--max-moves",
        "2",
        "--device",
        "cpu",
    )
    result = invoke("compress", str(model), "--data", "digits", "--out", str(out), *arguments)
    assert result.exit_code == 0, result.output
    return out


def figures(run: Path, *arguments: str) -> Any:
    result = invoke("diagnose", str(run), "--device", "cpu", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_everything_holds_and_is_measured(run: Path, tmp_path: Path) -> None:
    found = figures(run, "--out", str(tmp_path / "figures.json"))
    assert found["violated"] is None
    assert found["images"] == 80  # all that the search has measured on
    assert len(found["accumulated_error"]["mean_error"]) == len(found["sensitivity"]) == 4
    assert found["accumulated_error"]["violations"] == 0
    assert sum(map(sum, found["flips"]["matrix"])) == 80
    assert found["accumulated_error"]["mean_error"][0] == pytest.approx(found["accumulated_error"]["mean_bound"][0])
    assert json.loads((tmp_path / "figures.json").read_text()) == found
    plan = load(run).plan
    assert found["thresholds"] == list(plan.thresholds)  # the decimals of the plan
    trace = Trace.load(run / TRACE)
    assert found["risk"] == risk_of_blocks(trace, plan.thresholds, plan.scales, plan.options).tolist()


def test_it_looks_at_what_the_search_looked_at(run: Path) -> None:
    """Confidences, losses and noise measured here are those of the trace, image by image."""
    trace, compressed = Trace.load(run / TRACE), load(run)
    data = searched_images(run, open_data("digits").calibration)
    reference = library.load_reference(run, compressed.plan, json.loads((run / "source.json").read_text())["model"])
    batches = eval_batches(data, reference.backbone.preprocessing, evaluation_batch(reference.backbone))
    states = measure_states(reference, compressed.model, batches, tasks["classification"])
    np.testing.assert_allclose(states.float_confidence, trace.float_confidence[:, :-1], atol=1e-5)
    np.testing.assert_allclose(states.confidence, trace.confidence[:, :-1], atol=1e-5)
    np.testing.assert_allclose(states.losses, trace.loss, atol=1e-4)
    norms = _norms(reference, data)
    np.testing.assert_allclose((states.errors.total[:, 1:] / norms) ** 2, trace.noise, rtol=1e-3, atol=1e-6)


@torch.inference_mode()
def _norms(model: EarlyExitModel, data: Any) -> Any:
    [(images, _)] = eval_batches(data, model.backbone.preprocessing, len(data))
    blocks = model.forward_all(images, blocks=True).blocks
    return torch.stack([block.flatten(1).double().norm(dim=1) for block in blocks], dim=1).numpy()


def test_swin_merges_between_blocks() -> None:
    """Blocks change the number of tokens, and the mergings between them are quantized as well."""
    torch.manual_seed(0)
    model = add_exits(load_backbone("test-swin"), "lgvit", positions=(1, 2)).eval()
    images = torch.randn(6, 3, *model.backbone.config.image_size)
    rounded = quantize(model, images, "rtn", QuantSettings()).model
    assert isinstance(rounded, EarlyExitModel)
    labels = torch.zeros(6, dtype=torch.long)
    states = measure_states(
        model, rounded, [(images[:4], labels[:4]), (images[4:], labels[4:])], tasks["classification"]
    )
    depth = model.backbone.depth
    assert states.errors.local.shape == (6, depth)
    assert (states.errors.total[:, 0] == 0).all()  # the patch embedding is not quantized
    assert (states.errors.local > 0).all()
    stop = np.full(6, depth, dtype=np.intp)
    assert accumulated_error(states.errors, stop).holds


def test_tables_say_what_they_show(run: Path) -> None:
    output = invoke("diagnose", str(run), "--images", "20", "--device", "cpu").output
    for words in ("Theorem 1", "Corollary", "Flips", "Theorem 2", "Blocks", "Theorem 3", "20 images", "simulated"):
        assert words in output
    assert max(map(len, output.splitlines())) <= 120


def test_a_violated_bound_is_an_error(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    original = measure_states

    def damaged(*arguments: Any) -> States:
        states = original(*arguments)
        return replace(states, errors=_half(states.errors))

    monkeypatch.setattr(library, "measure_states", damaged)
    out = tmp_path / "figures.json"
    result = invoke("diagnose", str(run), "--device", "cpu", "--out", str(out))
    assert result.exit_code == 1
    assert "violate Theorem 2 (accumulated error)" in result.output
    assert "Theorem 2" in json.loads(out.read_text())["violated"]


def _half(errors: BlockErrors) -> BlockErrors:
    """Sources that do not add up to the error."""
    return BlockErrors(errors.total, errors.local / 2, errors.expansion / 2)


def test_the_model_has_moved(run: Path, model: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run, tmp_path / "run")
    source = json.loads((moved / "source.json").read_text())
    assert source["model"] == str(model)
    (moved / "source.json").write_text(json.dumps({**source, "model": str(tmp_path / "gone")}))
    gone = invoke("diagnose", str(moved), "--device", "cpu")
    assert gone.exit_code == 2
    assert "no longer at" in str(gone.exception)
    assert figures(moved, "--model", str(model))["violated"] is None
    (moved / "source.json").write_text(json.dumps({key: value for key, value in source.items() if key != "model"}))
    assert "name its folder (model)" in str(invoke("diagnose", str(moved)).exception)


def test_another_model_is_noticed(run: Path, tmp_path: Path) -> None:
    other = load_miniature()
    torch.nn.init.zeros_(next(other.parameters()))
    other.save(tmp_path / "other")
    result = invoke("diagnose", str(run), "--model", str(tmp_path / "other"))
    assert result.exit_code == 2
    assert "holds other weights" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("nowhere",), "holds no compressed model"), (("{run}", "--images", "0"), "at least 1")],
)
def test_mistakes(run: Path, arguments: tuple[str, ...], message: str) -> None:
    result = invoke("diagnose", *(argument.format(run=run) for argument in arguments))
    assert result.exit_code == 2
    assert message in str(result.exception)
