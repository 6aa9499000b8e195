"""The benchmark of streams counts what it ran; its times are for the machine at hand, so only their shape is tested."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import maqee
from maqee.bench import stream_models, streams
from maqee.bench.stream_models import open_model, start_models
from maqee.bench.stream_results import StreamComparison
from maqee.bench.streams import bench_stream
from maqee.bench.throughput import mass_for_mean
from maqee.errors import MaqeeError
from maqee.quant import Bits, QuantSettings
from maqee.report.bench_tables import stream_table
from maqee.runtime import ReadyModel
from tests.helpers import invoke, max_difference
from tests.runtime.makers import segmentation_model, small_model, write_compressed_run, write_trained_run

CPU = torch.device("cpu")


@pytest.fixture
def given_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed: the first way takes 1 s, the second one 2 s and so on, and every image waits for 1 ms."""

    def seconds(jobs: Sequence[Callable[[], Any]], *rest: Any, **more: Any) -> list[float]:
        return [float(number) for number in range(1, len(jobs) + 1)]

    monkeypatch.setattr(streams, "time_together", seconds)
    monkeypatch.setattr(streams, "_latencies", lambda job, device: torch.full((4,), 0.001).numpy())


def check_figures(found: StreamComparison) -> None:
    """What must hold between figures, whatever they are."""
    for row in found.rows:
        assert sum(row.exit_mass) == pytest.approx(1)
        assert row.mean_exit == pytest.approx(
            sum(share * block for share, block in zip(row.exit_mass, found.exit_blocks, strict=True))
        )
        ways = {way.name: way for way in row.ways}
        assert ways["full depth"].share_of_ideal == pytest.approx(row.macs_share)  # by the definition of the ideal
        assert ways[found.reference].times_reference == 1
        for way in row.ways:
            assert way.times_reference == pytest.approx(way.images_per_second / ways[found.reference].images_per_second)
            assert way.share_of_ideal == pytest.approx(way.images_per_second / row.ideal_images_per_second)


def test_all_ways_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "stream.json"
    command = "bench stream test-vit --no-compile --device cpu --images 40 --mean-exit 2,3 --repeats 1 --out"
    result = invoke(*command.split(), str(out))
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert (found["images"], found["batch_size"], found["precision"], found["executed"]) == (40, 8, "fp32", True)
    assert (found["weights"], found["quantization"], found["bits"]) == ("random", "none", None)
    assert [row["mean_exit"] for row in found["rows"]] == pytest.approx([2.0, 3.0], abs=0.3)
    for row in found["rows"]:
        assert sum(row["exit_mass"]) == pytest.approx(1)
        assert [way["name"] for way in row["ways"]] == ["full depth", "run", "stream"]
        assert row["ways"][0]["times_reference"] == 1
        # in full precision cost is in proportion to MACs: a head is paid by whoever reaches it
        assert row["bops_share"] == pytest.approx(row["macs_share"])
        for way in row["ways"]:
            assert 0 < way["p50_ms"] <= way["p95_ms"] <= way["p99_ms"]
        assert f"{row['macs_share']:.1%}" in result.output


@pytest.mark.usefixtures("given_times")
def test_without_run() -> None:
    found = bench_stream(
        "test-vit", images=8, batch_size=4, mean_exits=(2.5,), device="cpu", compile=False, batch_by_batch=False
    )
    [row] = found.rows
    assert [way.name for way in row.ways] == ["full depth", "stream"]
    assert "stream" in stream_table(found.to_json())


@pytest.mark.usefixtures("given_times")
def test_a_preset_on_another_engine() -> None:
    """It is quantized first, and beside it runs the float network at full depth."""
    found = bench_stream(
        "test-vit",
        engine="reference",
        method="rtn",
        patch="8/8",
        images=16,
        batch_size=4,
        mean_exits=(2.5,),
        device="cpu",
    )
    assert (found.quantization, found.method, found.bits, found.patch) == ("integer codes", "rtn", "W4A4", (8, 8))
    assert (found.weights, found.precision, found.compiled, found.cuda_graphs) == ("random", "fp32", False, False)
    assert found.reference == "float32 full depth"
    [row] = found.rows
    assert [way.name for way in row.ways] == ["float32 full depth", "full depth", "run", "stream"]
    assert [way.images_per_second for way in row.ways] == pytest.approx([16, 8, 16 / 3, 4])
    assert [way.times_reference for way in row.ways] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert row.ideal_images_per_second == pytest.approx(8 / row.macs_share)
    check_figures(found)
    cost = maqee.cost("test-vit", weight_bits=4, act_bits=4, exits="lgvit", exit_mass=row.exit_mass, patch=Bits(8, 8))
    assert row.bops == pytest.approx(cost.bops)
    assert row.bops_share == pytest.approx(cost.bops / maqee.cost("test-vit").bops)
    assert row.macs_share == pytest.approx(cost.macs / maqee.cost("test-vit").macs)  # full depth has no early heads


def test_rows_of_the_paper() -> None:
    """Cost of W4A4 with LGViT heads at the mean exits of ImageNet's rows: as printed, but for the unknown exit mix."""
    for model, mean, printed in (
        ("vit-base", 7.26, 2.93e11),
        ("deit-base", 7.59, 3.01e11),
        ("vit-large", 18.64, 9.15e11),
    ):
        blocks = maqee.cost(model, exits="lgvit").exit_blocks
        mass = mass_for_mean(blocks, mean)
        cost = maqee.cost(model, weight_bits=4, act_bits=4, exits="lgvit", exit_mass=mass.tolist())
        assert cost.mean_exit == pytest.approx(mean)
        assert cost.bops == pytest.approx(printed, rel=0.03)


@pytest.mark.usefixtures("given_times")
@pytest.mark.parametrize(("preset", "images"), [("test-vit", 2), ("test-swin", 1)])
def test_a_preset_on_kernels(preset: str, images: int, gpu_or_interpreter: str) -> None:
    options = {"method": "rtn", "images": images, "batch_size": 2, "device": gpu_or_interpreter, "compile": False}
    found = bench_stream(preset, exits="mlp", engine="triton", mean_exits=(2.5,), **options)  # type: ignore[arg-type]
    on_gpu = gpu_or_interpreter == "cuda"
    assert (found.engine, found.quantization, found.cuda_graphs) == ("triton", "integer codes", on_gpu)
    assert found.reference == ("bfloat16 full depth" if on_gpu else "float32 full depth")
    check_figures(found)
    table = stream_table(found.to_json())
    assert "engine triton, executed; " in table
    assert "without kernels, simulated" not in table


@pytest.fixture
def gpu_or_interpreter() -> str:
    """Where kernels run."""
    pytest.importorskip("triton", reason="Triton is not installed on this machine")
    return "cuda" if torch.cuda.is_available() else "cpu"


@torch.no_grad()
def test_full_depth_answers_as_the_model_that_never_stops() -> None:
    ready = open_model("test-vit", "lgvit", "reference", "rtn", QuantSettings(), 0, CPU)
    images = torch.randn(3, 3, 32, 32)
    models = start_models(ready, "reference", CPU, torch.float32, compile=False, graphs=True)
    assert max_difference(models.full.run(images).output, models.ready.run(images).output) < 1e-4
    assert models.full.run(images).exit.tolist() == [0, 0, 0]  # there are no exits before the end
    assert models.reference.run(images).shape == (3, 10)
    assert models.simulated == ()


@pytest.mark.usefixtures("given_times")
def test_a_compressed_run_has_its_own_bits(tmp_path: Path) -> None:
    images = torch.randn(16, 1, 16, 16)
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    options = {"images": 12, "batch_size": 4, "mean_exits": (2.0,), "device": "cpu", "compile": False}
    for engine, words in (("reference", "integer codes"), ("torch", "simulated")):
        found = bench_stream(folder, engine=engine, bits="W2A2", **options)  # type: ignore[arg-type]
        assert (found.engine, found.quantization, found.reference) == (engine, words, "float32 full depth")
        assert (found.weights, found.method, found.bits, found.common_steps) == (
            "stored",
            "the run's",
            "the plan's",
            None,
        )
        assert 0 < found.rows[0].macs_share < 1
        check_figures(found)
        whole = sum(part.macs for part in small_model().backbone.parts())
        cost = found.rows[0].bops_share * 1024 * whole  # blocks and heads at W4A8, as the run says
        assert cost == pytest.approx(found.rows[0].bops)
        assert ("simulated in floating point" in stream_table(found.to_json())) == (words == "simulated")


@pytest.mark.usefixtures("given_times")
def test_a_float_run_on_another_engine(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed on this machine")
    folder = write_trained_run(tmp_path / "run", small_model())
    found = bench_stream(folder, engine="onnxruntime", images=12, batch_size=4, mean_exits=(2.0,), device="cpu")
    assert (found.quantization, found.bits, found.patch, found.reference) == (
        "none", None, (32, 32), "float32 full depth",
    )  # fmt: skip
    check_figures(found)


def test_heads_that_end_the_network_are_at_full_depth_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder after the last block is run and counted, early ones are neither."""
    monkeypatch.setattr(stream_models, "start_model", lambda ready, *rest, **more: ready)
    network = segmentation_model()
    ready = ReadyModel(network, maqee.Policy.never(2), "segmentation")
    models = start_models(ready, "onnxruntime", CPU, torch.float32, compile=False, graphs=False)
    early = {f"exit {block} head (segformer)" for block in network.positions}
    assert models.full_macs == sum(part.macs for part in network.parts() if part.name not in early)
    assert early < {part.name for part in network.parts()}
    assert models.full.run(torch.randn(2, 3, 32, 32)).exit.tolist() == [2, 2]


def test_what_it_cannot_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_trained_run(tmp_path / "run", small_model())
    with pytest.raises(MaqeeError, match="runs integer codes, and this model is not compressed"):
        bench_stream(folder, engine="reference", device="cpu")
    with pytest.raises(MaqeeError, match="test-vit has no exits, so that a stream gains nothing"):
        bench_stream("test-vit", exits="none", device="cpu")
    with pytest.raises(MaqeeError, match="Unknown engine 'onnx'"):
        bench_stream("test-vit", engine="onnx", device="cpu")
    with pytest.raises(MaqeeError, match="bf16 is for float models on the engine torch"):
        bench_stream("test-vit", engine="reference", method="rtn", precision="bf16", device="cpu")
    monkeypatch.setattr("maqee.runtime.engines.find_spec", lambda name: None)
    with pytest.raises(MaqeeError, match=r"needs onnx, .*pip install"):  # before anything is fitted for minutes
        bench_stream("vit-large", engine="onnxruntime", device="cpu")
    assert invoke("bench", "stream", str(folder), "--mean-exit", "two", "--device", "cpu").exit_code == 2


def test_low_bits_on_a_gpu(gpu: torch.device) -> None:
    """Executed in graphs at full and part batches; full depth in bfloat16 is beside it."""
    pytest.importorskip("triton", reason="Triton is not installed on this machine")
    found = bench_stream(
        "test-vit", engine="triton", images=100, batch_size=16, mean_exits=(2.0, 3.0), device=str(gpu), repeats=1
    )
    assert (found.cuda_graphs, found.precision, found.reference) == (True, "fp32", "bfloat16 full depth")
    assert [row.mean_exit for row in found.rows] == pytest.approx([2.0, 3.0], abs=0.3)
    check_figures(found)


def test_bfloat16_on_a_gpu(gpu: torch.device) -> None:
    found = bench_stream("test-vit", images=100, batch_size=16, mean_exits=(2.0,), device=str(gpu), repeats=1)
    assert (found.cuda_graphs, found.precision, found.reference) == (True, "bf16", "full depth")
    check_figures(found)
