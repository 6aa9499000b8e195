"""Models side by side: what is counted is what `run` says; times are for the machine at hand, so only their shape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maqee.bench import plans, ready_images
from maqee.bench.plan_rows import PlanRequest, open_rows, parse_row, weight_bytes
from maqee.bench.plans import bench_plans
from maqee.bench.ready_images import View, chunk_size, draw_some, prepared_chunks
from maqee.bench.starting import at_full_depth
from maqee.data import open_data
from maqee.data.transforms import prepare
from maqee.errors import MaqeeError
from maqee.exits import Decision, EarlyExitModel
from maqee.runtime import load
from tests.helpers import FIXTURES, invoke, load_miniature
from tests.runtime.makers import small_model, write_compressed_run

DIGITS = FIXTURES / "digits"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    test = open_data("digits").test
    model = load_miniature()
    images = prepare(test.images.load(torch.arange(24), model.backbone.preprocessing), model.backbone.preprocessing)
    folder, _ = write_compressed_run(tmp_path_factory.mktemp("plans") / "run", model, images)
    return folder


def right(decision: Decision, chosen: torch.Tensor) -> float:
    labels = open_data("digits").test.targets[chosen]
    return float((decision.output.argmax(dim=-1) == labels).float().mean())


def test_every_figure_is_that_of_run(compressed: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "plans.json", tmp_path / "plans.svg"
    rows = [f"{DIGITS}", f"{DIGITS}@torch:0.7", f"{compressed}@onnxruntime", f"{compressed}@reference:full"]
    options = ["--data", "digits", "--images", "50", "--batch", "8", "--repeats", "2", "--device", "cpu"]
    result = invoke("bench", "plans", *rows, *options, "--out", str(out), "--picture", str(picture))
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert (found["data"], found["images"], found["batch"], found["repeats"]) == ("digits test", 50, 8, 2)
    kinds = [(row["kind"], row["quantization"], row["execution"]) for row in found["rows"]]
    assert kinds == [
        ("float", "none", "executed"),
        ("early exit", "none", "executed"),
        ("low bits and early exit", "integer codes", "executed"),
        ("low bits", "integer codes", "executed"),
    ]
    float_model, quantized = load(DIGITS), load(compressed, engine="onnxruntime")
    test = open_data("digits").test
    chosen = draw_some(test, 50, 0)
    images = prepare(test.images.load(chosen, float_model.preprocessing), float_model.preprocessing)
    for row, model in zip(found["rows"][1:3], (float_model.with_policy(0.7), quantized), strict=True):
        decision = model.run(images)
        assert row["accuracy"] == pytest.approx(right(decision, chosen))
        mass = torch.bincount(decision.exit, minlength=3) / 50
        assert row["exit_mass"] == pytest.approx(mass.tolist())
        assert row["mean_exit"] == pytest.approx(float(mass @ torch.tensor(row["exit_blocks"]).float()))
        assert len(set(row["exit_mass"])) > 1, "an image must leave early, or nothing is shown"
    for row in (found["rows"][0], found["rows"][3]):
        assert (row["exit_mass"], row["mean_exit"], row["thresholds"]) == ([1.0], 4.0, [])
    assert found["rows"][0]["accuracy"] == pytest.approx(right(float_model.run(images), chosen))
    assert found["rows"][0]["ratio"] == 1
    for row in found["rows"]:
        speed = row["images_per_second"]
        assert 0 < speed["low"] <= speed["median"] <= speed["high"]
        assert f"{row['accuracy']:.2%}" in result.output
    assert [row["file_bytes"] for row in found["rows"]] == [
        (folder / "model.safetensors").stat().st_size for folder in (DIGITS, DIGITS, compressed, compressed)
    ]
    drawn = picture.read_text()
    for words in ("float, full depth", "low bits and early exit", "digits@torch<", ">0.7<", "run@onnxruntime"):
        assert words in drawn


def test_parts_of_the_images_count_like_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for two batches: the figures are the same, and seconds are those of all parts together."""
    whole = bench_plans([f"{DIGITS}:0.7"], data="digits", images=40, batch_size=8, repeats=2, device="cpu", show=False)
    timed: list[int] = []

    def count(jobs: Sequence[object], device: object, repeats: int, warm_up: int) -> list[list[float]]:
        timed.append(len(jobs))
        return [[1.0, 2.0] for _ in jobs]

    monkeypatch.setattr(plans, "times_together", count)
    monkeypatch.setattr(ready_images, "BYTES_ON_CPU", 16 * 16 * 16 * 4)
    parts = bench_plans([f"{DIGITS}:0.7"], data="digits", images=40, batch_size=8, repeats=2, device="cpu", show=False)
    assert timed == [1, 1, 1]  # 16, 16 and 8 images
    [row] = parts.rows
    assert (row.images_per_second.low, row.images_per_second.high) == pytest.approx((40 / 6, 40 / 3))
    same = replace(whole.rows[0], images_per_second=row.images_per_second, ratio=row.ratio)
    assert row == same


def test_chunks_are_what_evaluation_sees() -> None:
    test = open_data("digits").test.select(range(21))
    preprocessing = load_miniature().backbone.preprocessing
    views = [
        View(preprocessing, torch.float32),
        View(preprocessing, torch.bfloat16),
        View(preprocessing, torch.float32),
    ]
    [chunk] = prepared_chunks(test, views, 8, CPU)
    assert set(chunk.batches) == set(views)
    assert [len(batch) for batch in chunk.batches[views[0]]] == [8, 8, 5]
    expected = prepare(test.images.load(range(21), preprocessing), preprocessing)
    assert torch.equal(torch.cat(chunk.batches[views[0]]), expected)
    assert torch.equal(torch.cat(chunk.batches[views[1]]), expected.bfloat16())


def test_memory_is_bounded() -> None:
    large = replace(load_miniature().backbone.preprocessing, image_size=(224, 224), mean=(0.5,) * 3, std=(0.5,) * 3)
    for views in ([View(large, torch.float32)], [View(large, torch.float32), View(large, torch.bfloat16)]):
        count = chunk_size(views, 8, CPU)
        held = count * 3 * 224 * 224 * sum(view.dtype.itemsize for view in views)
        assert count % 8 == 0
        assert 0.9 * ready_images.BYTES_ON_CPU < held <= ready_images.BYTES_ON_CPU
    assert chunk_size([View(large, torch.float32)], 5000, CPU) == 5000  # a batch at least


@pytest.mark.parametrize(
    ("ending", "engine", "stop"),
    [
        ("", "torch", None),
        ("@openvino", "openvino", None),
        (":0.8", "torch", 0.8),
        ("@onnxruntime:1", "onnxruntime", 1.0),
        ("@onnxruntime:.5", "onnxruntime", 0.5),
        ("@torch:full", "torch", "full"),
    ],
)
def test_rows(ending: str, engine: str, stop: float | str | None) -> None:
    assert parse_row(f"{DIGITS}{ending}") == PlanRequest(DIGITS, engine, stop)
    assert PlanRequest(DIGITS, engine, stop).name.startswith(f"fixtures/digits@{engine}")


def test_a_folder_with_an_at_sign_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine@home:0.5"
    folder.mkdir()
    assert parse_row(str(folder)) == PlanRequest(folder)
    assert parse_row(f"{folder}@openvino:0.8") == PlanRequest(folder, "openvino", 0.8)


def test_what_a_row_cannot_be(tmp_path: Path) -> None:
    for text, words in (
        ("nowhere@torch", "nowhere is no folder: give rows as RUN, RUN@ENGINE"),
        (f"{DIGITS}@onnx", "Unknown engine 'onnx'"),
        (f"{DIGITS}:1.5", "must be from 0 to 1; for full depth write"),
    ):
        with pytest.raises(MaqeeError, match=words):
            parse_row(text)
    whole = tmp_path / "whole"
    EarlyExitModel(small_model().backbone, (), ()).save(whole)
    with pytest.raises(MaqeeError, match=r"whole has no exits, so that nothing can stop at 0.8"):
        open_rows([PlanRequest(whole, "torch", 0.8)], CPU, torch.float32, compile=False)
    with pytest.raises(MaqeeError, match=r"picture: plans.pdf must end in .svg or .png"):
        raise invoke("bench", "plans", str(DIGITS), "--picture", "plans.pdf").exception or AssertionError
    with pytest.raises(MaqeeError, match="does not say which data"):
        bench_plans([str(DIGITS)], device="cpu")
    with pytest.raises(MaqeeError, match="no file of weights"):
        weight_bytes(tmp_path)


def test_rows_that_differ_in_their_threshold_share_a_model() -> None:
    requests = [PlanRequest(DIGITS, "torch", stop) for stop in (None, 0.5, 0.8, "full")]
    rows = open_rows(requests, CPU, torch.bfloat16, compile=False)
    assert rows[1].ready.model is rows[2].ready.model
    assert rows[0].ready.model is rows[3].ready.model
    assert rows[0].ready.model is not rows[1].ready.model
    assert rows[1].ready.policy.thresholds == (0.5, 0.5)
    assert {parameter.dtype for parameter in rows[1].ready.model.parameters()} == {torch.bfloat16}


def test_full_depth_has_no_early_heads_and_the_same_answers() -> None:
    ready = load(DIGITS)
    images = torch.randn(3, 1, 16, 16)
    whole = at_full_depth(ready)
    assert (whole.model.num_exits, len(whole.model.heads)) == (0, 0)
    assert torch.equal(whole(images), ready.model.forward(images))


def test_on_a_gpu(compressed: Path, gpu: torch.device) -> None:
    """Graphs and kernels answer as the processor does, but for an image or two that rounding decides."""
    options = {"data": "digits", "images": 60, "batch_size": 16, "repeats": 1, "show": False}
    found = bench_plans([f"{DIGITS}", f"{DIGITS}:0.7", f"{compressed}@triton"], **options)  # type: ignore[arg-type]
    assert (found.device, found.precision, found.cuda_graphs) == ("cuda", "bf16", True)
    assert [row.precision for row in found.rows] == ["bf16", "bf16", "fp32"]
    rows = [f"{DIGITS}", f"{DIGITS}:0.7", f"{compressed}@reference"]
    wanted = bench_plans(rows, device="cpu", **options)  # type: ignore[arg-type]
    for row, expected in zip(found.rows, wanted.rows, strict=True):
        assert row.accuracy == pytest.approx(expected.accuracy, abs=2.5 / 60)
        assert row.exit_mass == pytest.approx(expected.exit_mass, abs=3.5 / 60)


def test_compiled_models_and_kernels_in_one_process(compressed: Path, gpu: torch.device) -> None:
    """All of them in graphs: whoever was not compiled, or measured for tiles, in time could not be recorded."""
    rows = [f"{DIGITS}", f"{DIGITS}:0.7", f"{compressed}@triton", f"{compressed}@triton:full", f"{compressed}@torch"]
    options = {"data": "digits", "images": 60, "batch_size": 16, "repeats": 1, "show": False}
    found = bench_plans(rows, compile=True, device=str(gpu), **options)  # type: ignore[arg-type]
    plain = bench_plans(rows, device=str(gpu), **options)  # type: ignore[arg-type]
    assert (found.compiled, found.cuda_graphs) == (True, True)
    for row, expected in zip(found.rows, plain.rows, strict=True):
        assert row.accuracy == pytest.approx(expected.accuracy, abs=2.5 / 60)
        assert row.exit_mass == pytest.approx(expected.exit_mass, abs=3.5 / 60)
