"""Segmentation and detection through the whole method, on miniatures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import maqee
from maqee.apq import Budget, SearchOptions, Trace, bops
from maqee.compression import compress
from maqee.compression.recovery import training_batch
from maqee.data import Splits, eval_batches, open_data
from maqee.evaluation.record import evaluation_batch
from maqee.exits import EarlyExitModel, add_exits
from maqee.io import read_json
from maqee.models import load_backbone
from maqee.quant import Bits, QuantizedModel, QuantSettings, quantize
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.runtime import ReadyModel
from maqee.tasks import tasks
from tests.compression import dense
from tests.helpers import invoke, randomize

pytestmark = pytest.mark.trains


@pytest.fixture(scope="module", params=["segmentation", "detection"])
def mini(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dense.Miniature:
    folder = tmp_path_factory.mktemp(request.param)
    made: dense.Miniature = getattr(dense, request.param)(folder)
    return made


@pytest.fixture(scope="module")
def compressed(mini: dense.Miniature, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By the command line, with defaults: the task is the recipe's, 1,024 samples are the 12 that there are."""
    out = tmp_path_factory.mktemp("compressed") / "out"
    result = invoke("compress", *mini.arguments(), "--fit-images", "4", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert f"on calibration       {tasks[mini.task].score_name}" in result.output
    page = (out / "report.html").read_text()
    assert f"{tasks[mini.task].score_name} of the image" in page
    assert "data:image/png;base64," in page
    return out


def load_model(mini: dense.Miniature) -> EarlyExitModel:
    return EarlyExitModel.load(mini.run / "1-joint", tasks[mini.task].confidence).eval()


def splits_of(mini: dense.Miniature) -> Splits:
    return open_data(mini.data, mini.root)


# --- the commands ----------------------------------------------------------------------------------------------------


def test_evaluation(mini: dense.Miniature, compressed: Path, tmp_path: Path) -> None:
    task = tasks[mini.task]
    result = invoke("eval", str(compressed), "--device", "cpu", "--out", str(tmp_path / "e.json"))
    assert result.exit_code == 0, result.output
    assert f"least cost for {task.score_name} on calibration images" in result.output
    written = read_json(tmp_path / "e.json")
    assert (written["task"], written["metric"], written["score"]) == (mini.task, task.metric_name, task.score_name)
    assert 0 <= written["plan"][task.metric_name] <= 1
    assert written["shared_thresholds"][-1]["mean_exit"] == 4


def test_baselines(mini: dense.Miniature, tmp_path: Path) -> None:
    out, arguments = tmp_path / "b.json", ["--method", "erq,mptq", "--fit-images", "4"]
    result = invoke("baselines", *mini.arguments(), *arguments, "--out", str(out))
    assert result.exit_code == 0, result.output
    rows = read_json(out)["rows"]
    assert [row["method"] for row in rows] == ["float", "erq", "mptq"]
    assert all(row["metric"] == tasks[mini.task].metric_name for row in rows)
    full, erq = (row["shared_thresholds"][-1]["bops"] for row in rows[:2])
    assert erq < full / 4


def test_search_without_the_model(mini: dense.Miniature, compressed: Path) -> None:
    """A search works with the mean score of an image and says so."""
    trace = Trace.load(compressed / "trace.safetensors")
    assert trace.samples == 12
    assert trace.correct.min() >= 0
    assert trace.correct.max() <= 1
    reachable = max(0.0, float(trace.correct.mean(axis=0).min()) - 1e-4)  # however it is rounded
    for more in ([], ["--frontier"], ["--min-accuracy", f"{reachable:.4f}"]):
        result = invoke("search", str(compressed), *more)
        assert result.exit_code == 0, result.output
        assert tasks[mini.task].score_name in result.output
        assert tasks[mini.task].metric_name not in result.output


def test_diagnosis(compressed: Path) -> None:
    result = invoke("diagnose", str(compressed), "--device", "cpu")
    assert result.exit_code == 0, result.output


def test_the_wrong_task_is_an_error_and_no_traceback(mini: dense.Miniature, tmp_path: Path) -> None:
    wrong = ["--task", "classification"]
    for command in (
        ["compress", *mini.arguments(), *wrong, "--out", str(tmp_path / "out")],
        ["baselines", *mini.arguments(), *wrong],
    ):
        result = invoke(*command)
        assert result.exit_code == 2, command[0]
        assert "needs labels" in str(result.exception)
    assert not (tmp_path / "out").exists()
    model = [str(mini.run / "1-joint"), "--data", mini.data, "--data-root", str(mini.root)]
    result = invoke("quantize", *model, "--device", "cpu")
    assert result.exit_code == 2
    assert "maqee baselines" in str(result.exception)


# --- the library -----------------------------------------------------------------------------------------------------


def test_a_loaded_model_says_the_same_to_the_last_bit(mini: dense.Miniature, tmp_path: Path) -> None:
    """Also with the final classifier quantized, which of a detector is two MLPs and of a decoder nothing."""
    splits, settings = splits_of(mini), QuantSettings(classifier=Bits(8, 8), patch=Bits(8, 8))
    done = compress(
        load_model(mini),
        splits.calibration,
        search_options=SearchOptions(max_swaps=1),
        options=dense.options(mini.task, quantization=settings),
        out=tmp_path / "out",
        device="cpu",
        show=False,
    )
    loaded = maqee.load(tmp_path / "out")
    [(images, _)] = eval_batches(splits.test, loaded.preprocessing, len(splits.test))
    with torch.inference_mode():
        ours, theirs = done.model.eval().forward_all(images).outputs, loaded.model.forward_all(images).outputs
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert torch.equal(loaded.run(images).output, done.model.run(images, done.plan.policy).output)


def recover(mini: dense.Miniature, out: Path, budget: Budget) -> ReadyModel:
    splits = splits_of(mini)
    return compress(
        load_model(mini),
        splits.calibration,
        splits.train,
        budget=budget,
        search_options=SearchOptions(max_swaps=1),
        options=dense.options(mini.task, recovery_steps=3),
        out=out,
        device="cpu",
        show=False,
    )


def test_recovery(mini: dense.Miniature, tmp_path: Path) -> None:
    done = recover(mini, tmp_path / "out", Budget(min_metric=0.0))
    assert done.plan.history[-1].kind == "recovery"
    assert done.plan.history[-1].accepted
    before, after = (Trace.load(tmp_path / "out" / name / "trace.safetensors") for name in ("unrecovered", "."))
    assert not np.array_equal(before.loss, after.loss)
    assert np.array_equal(before.float_loss, after.float_loss)
    assert maqee.load(tmp_path / "out" / "unrecovered").plan.task == mini.task


# --- what is quantized, and what it costs ----------------------------------------------------------------------------


def executed_bops(quantized: QuantizedModel, images: Tensor) -> float:
    """MACs x bits of every layer and attention product as they really run, for one image."""
    total = 0.0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        if isinstance(module, QuantAttend):
            q, widths = inputs[0], [grid.bits for grid in module.all_grids().values()]
            total += 2 * q.shape[1] * q.shape[2] ** 2 * q.shape[3] * widths[0] * widths[1]
            return
        inner = module.inner if isinstance(module, QuantLayer) else module
        weights, inputs_ = 32, 32
        if isinstance(module, QuantLayer):
            weights, inputs_ = module.bits or 32, module.input.bits if module.input else 32
        assert isinstance(inner, nn.Linear | nn.Conv2d)
        channels = output.shape[1] if isinstance(inner, nn.Conv2d) else output.shape[-1]
        total += output[0].numel() // channels * inner.weight.numel() * weights * inputs_

    hooks = []
    for name, module in quantized.model.named_modules():
        plain = isinstance(module, nn.Linear | nn.Conv2d) and not name.endswith(".inner")
        if plain or isinstance(module, QuantLayer | QuantAttend):
            hooks.append(module.register_forward_hook(count))
    quantized.run_everything(images[:1])
    for hook in hooks:
        hook.remove()
    return total


@pytest.mark.parametrize("classifier", [Bits(None, None), Bits(8, 8)], ids=str)
@pytest.mark.parametrize(("preset", "exits"), [("test-vit", "segformer"), ("test-yolos", "detection")])
def test_cost_is_of_what_really_runs(preset: str, exits: str, classifier: Bits) -> None:
    """Hooks on every layer and product, against the sum over parts."""
    model = randomize(add_exits(load_backbone(preset), exits, positions=(1, 2)))
    assert isinstance(model, EarlyExitModel)
    images = torch.randn(2, 3, *model.backbone.preprocessing.image_size)
    quantized = quantize(model, images, "rtn", QuantSettings(classifier=classifier, heads=Bits(5, 6)))
    assert executed_bops(quantized, images) == bops(model.parts(), quantized.bit_settings)


@pytest.mark.parametrize("method", ["rtn", "repq", "erq", "erq-2024", "mptq"])
def test_every_method_quantizes_decoders_and_detectors(method: str) -> None:
    settings = QuantSettings(classifier=Bits(8, 8))
    for preset, exits in (("test-vit", "segformer"), ("test-yolos", "detection"), ("test-yolos", "detection-encoder")):
        model = randomize(add_exits(load_backbone(preset), exits, positions=(1, 2)))
        assert isinstance(model, EarlyExitModel)
        images = torch.randn(2, 3, *model.backbone.preprocessing.image_size)
        quantized = quantize(model, images, method, settings)
        roles = {name: place.role for name, place in quantized.places.items() if not place.attention}
        final = {name for name, role in roles.items() if role == "classifier"}
        if exits == "segformer":
            assert not final, "the backbone's own classifier is not run"
            assert "heads.2.classify" in quantized.layers, "the last decoder is a head"
        else:
            assert len(final) == 6
            assert final <= set(quantized.layers)
        used = {name for name, module in quantized.model.named_modules() if isinstance(module, nn.Linear)}
        linear = {name.removesuffix(".inner") for name in used if not name.startswith(model.idle or ("-",))}
        assert linear <= set(quantized.places)


def test_a_norm_of_the_decoder_feeds_one_projection() -> None:
    """So that methods may change its scale, as they do inside blocks; what comes out stays the same."""
    model = randomize(add_exits(load_backbone("test-vit"), "segformer", positions=(1, 2)))
    images = torch.randn(4, 3, *load_backbone("test-vit").preprocessing.image_size)
    for method in ("repq", "mptq"):
        quantized = quantize(model, images, method)
        assert quantized.places["heads.1.projections.3"].norm == "heads.1.norms.3"
        norms = [model.get_submodule("heads.1.norms.3"), quantized.model.get_submodule("heads.1.norms.3")]
        assert not torch.equal(norms[0].weight, norms[1].weight), method  # type: ignore[arg-type]
        with quantized.in_float():
            wanted, found = model.forward_all(images).outputs, quantized.run_everything(images).outputs  # type: ignore[operator]
        assert all(torch.allclose(one, two, atol=1e-3) for one, two in zip(wanted, found, strict=True)), method


# --- large images ----------------------------------------------------------------------------------------------------


def test_large_images_come_in_smaller_batches() -> None:
    camvid = load_backbone("vit-small", image_size=(576, 768))  # 1,729 tokens
    usual = load_backbone("vit-small")
    assert (evaluation_batch(usual), evaluation_batch(camvid)) == (8, 1)  # on a processor
    assert (evaluation_batch(usual.to("meta")), training_batch(usual)) == (256, 256)
    assert (evaluation_batch(camvid.to("meta")), training_batch(camvid)) == (8, 8)
    swin = load_backbone("swin-cifar")  # 1,024 tokens at first, but narrow ones
    assert (evaluation_batch(swin), evaluation_batch(swin.to("meta")), training_batch(swin)) == (12, 256, 256)
