"""ONNX Runtime and OpenVINO: every task, every kind of network, the decisions of the simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import maqee
from maqee.data.transforms import prepare
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.models import load_backbone
from maqee.quant import QuantizedModel, QuantSettings, quantize
from maqee.runtime.engines import use_engine
from maqee.runtime.export.coded_operands import byte_range
from maqee.runtime.export.layer_check import check_layers
from maqee.runtime.export.segment_files import segment_graphs
from maqee.runtime.onnx_sessions import start_session
from maqee.runtime.openvino_models import start_model
from maqee.runtime.outside import OutsideGraph, outside_segments
from tests.helpers import load_miniature, randomize
from tests.runtime.makers import (
    detection_model,
    parting_policy,
    ready,
    segmentation_model,
    small_model,
    write_compressed_run,
    write_trained_run,
)
from tests.runtime.onnx_runs import run_graph

CPU = torch.device("cpu")
ENGINES = ("onnxruntime", "openvino")


def noise(model: EarlyExitModel, count: int = 12) -> Tensor:
    config = model.backbone.config
    return torch.randn(count, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0))


def swin() -> EarlyExitModel:
    model = add_exits(load_backbone("test-swin"), "lgvit", positions=(2,))
    randomize(model, std=0.3)
    return model


def without_exits() -> EarlyExitModel:
    model = EarlyExitModel(load_backbone("test-vit"), (), ())
    randomize(model, std=0.3)
    return model


@pytest.mark.parametrize(
    "make",
    [small_model, segmentation_model, detection_model, swin, without_exits],
    ids=["classification", "segmentation", "detection", "swin", "no exits"],
)
def test_float_models_of_every_task(make: Callable[[], EarlyExitModel]) -> None:
    model = make()
    images = noise(model)
    policy = parting_policy(model, images) if model.num_exits else Policy(())
    wanted, plain = model.run(images, policy), model.segments
    assert len(set(wanted.exit.tolist())) == model.num_exits + 1
    for start in (start_session, start_model):
        model.segments = plain
        model.segments = outside_segments(model, start, packed=True)
        found = model.run(images, policy)
        assert torch.equal(found.exit, wanted.exit)
        assert torch.allclose(found.output, wanted.output, rtol=1e-4, atol=1e-4)
        assert torch.allclose(found.confidence, wanted.confidence, atol=1e-5)


@pytest.mark.parametrize("engine", [*ENGINES, "reference"])
def test_streams_on_every_engine(engine: str, tmp_path: Path) -> None:
    """Batches of other sizes than the stream's own, and fewer images than it would like."""
    model = small_model()
    images = noise(model, 20)
    folder, _ = write_compressed_run(tmp_path / "run", model, images)
    loaded = maqee.load(folder, engine=engine)
    wanted, answers = loaded.run(images), list(loaded.stream(images.split(7), batch=4))
    assert len(set(wanted.exit.tolist())) > 1
    assert torch.equal(torch.cat([answer.exit for answer in answers]), wanted.exit)
    assert torch.allclose(torch.cat([answer.output for answer in answers]), wanted.output, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def compressed() -> dict[str, tuple[QuantizedModel, Tensor]]:
    """Models whose grids have every form: bytes, two regions, two groups of columns, logarithms."""
    torch.manual_seed(0)
    made: dict[str, tuple[QuantizedModel, Tensor]] = {}
    segmentation, detection = load_miniature("segmentation"), load_miniature("detection")
    for name, method, bits, model in (
        ("rtn", "rtn", (8, 8), load_miniature()),
        ("erq", "erq", (3, 4), load_miniature()),
        ("common steps", "erq", (4, 8), load_miniature()),
        ("mptq", "mptq", (5, 4), load_miniature()),
        ("segmentation", "erq", (4, 6), segmentation),
        ("detection", "repq", (4, 6), detection),
        ("swin", "erq", (4, 4), swin()),
    ):
        images = noise(model, 8)
        settings = QuantSettings(weight_bits=bits[0], act_bits=bits[1], common_steps=name == "common steps")
        made[name] = quantize(model, images, method, settings), images
    return made


@pytest.mark.parametrize("name", ["rtn", "erq", "common steps", "mptq", "segmentation", "detection", "swin"])
def test_every_layer_from_equal_inputs(name: str, compressed: dict[str, tuple[QuantizedModel, Tensor]]) -> None:
    quantized, images = compressed[name]
    found = check_layers(quantized, images[:2], run_graph)
    assert len(found) == len(quantized.layers) + 2 * len(quantized.attends)
    assert max(found.values()) < 1e-5, max(found, key=lambda layer: found[layer])


def test_openvino_layers_from_equal_inputs(compressed: dict[str, tuple[QuantizedModel, Tensor]]) -> None:
    """It multiplies by the inverse of a step, so that a number on the very border may get the other code."""
    quantized, images = compressed["erq"]
    found = check_layers(
        quantized, images[:1], lambda model, inputs: list(start_model(model)(list(inputs.values()))), packed=False
    )
    assert float(np.median(list(found.values()))) < 1e-5
    assert max(found.values()) < 0.1


def test_products_are_made_from_bytes(compressed: dict[str, tuple[QuantizedModel, Tensor]], tmp_path: Path) -> None:
    """What ONNX Runtime makes of a graph: only p v is left in float, and only where the grid of p fits no byte."""
    quantized, _ = compressed["rtn"]
    network = quantized.model
    assert isinstance(network, EarlyExitModel)
    first_exit, *_, to_end = segment_graphs(network)
    found = operators(to_end.model, tmp_path / "optimised.onnx")
    first, last = network.exit_blocks[-2:]
    inside = tuple(f"backbone.blocks.{number}." for number in range(first, last))
    layers = sum(name.startswith(inside) for name in quantized.layers)
    attends = [attend.all_grids() for name, attend in quantized.attends.items() if name.startswith(inside)]
    in_bytes = sum(byte_range(grids["p"].grid) is not None for grids in attends)
    assert len(attends) == last - first > 0
    assert found["MatMulIntegerToFloat"] + found["QLinearMatMul"] == layers + len(attends) + in_bytes
    assert found["DequantizeLinear"] == len(attends) - in_bytes  # of v
    assert operators(first_exit.model, tmp_path / "first.onnx")["Gemm"] == 0, "a head's classifier is left in float"


def operators(model: onnx.ModelProto, place: Path) -> Counter[str]:
    """How many of each there are when ONNX Runtime is done with a graph."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(place)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(place).graph.node)


@pytest.mark.parametrize("engine", ENGINES)
def test_compressed_runs_take_the_exits_of_the_simulation(tmp_path: Path, engine: str) -> None:
    images = torch.randn(24, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    wanted, model = maqee.load(folder).run(images), maqee.load(folder, engine=engine)
    found = model.run(images)
    assert torch.equal(found.exit, wanted.exit)
    assert torch.equal(found.output.argmax(dim=1), wanted.output.argmax(dim=1))
    assert model.to("cpu").model.segments is model.model.segments, "moving to where it is makes nothing anew"
    assert torch.equal(model.run(images[:5]).exit, wanted.exit[:5])


def test_another_confidence_is_computed_from_the_output() -> None:
    logits = np.array([[0.0, 2.0], [1.0, 0.0]], np.float32)
    segment = OutsideGraph(lambda inputs: [inputs[0], logits, np.zeros(2, np.float32)], (), ())
    images = torch.zeros(2, 3)
    assert segment(images, {}).confidence.tolist() == [0, 0]
    segment.use_confidence(lambda output: output.amax(dim=1))
    assert segment(images, {}).confidence.tolist() == [2, 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_outside_engines_run_on_the_cpu(tmp_path: Path, engine: str) -> None:
    folder = write_trained_run(tmp_path / "run", small_model())
    with pytest.raises(MaqeeError, match="runs on the CPU, not on meta: give the device cpu"):
        use_engine(maqee.load(folder), engine, torch.device("meta"))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str) -> None:
    monkeypatch.setattr("maqee.runtime.engines.find_spec", lambda name: None)
    folder = write_trained_run(tmp_path / "run", small_model())
    with pytest.raises(MaqeeError, match=r"which is not installed: pip install 'maqee\["):
        maqee.load(folder, engine=engine)


@pytest.mark.slow
def test_vit_tiny_layer_by_layer_on_real_images(shared_weights: Path, shared_data: Path) -> None:
    network = EarlyExitModel.load(shared_weights / "cifar100-vit-tiny-lgvit").eval()
    preprocessing = network.backbone.preprocessing
    splits = maqee.open_data("cifar100", shared_data)
    images = prepare(splits.test.images.load(range(26), preprocessing), preprocessing)
    policy = Policy.same(0.8, network.num_exits)
    wanted = network.run(images[2:], policy)
    settings = QuantSettings(weight_bits=4, act_bits=4)
    layers = check_layers(quantize(network, images[:2], "rtn", settings), images[:1], run_graph)
    assert max(layers.values()) < 1e-5, max(layers, key=lambda layer: layers[layer])
    found = use_engine(ready(network, policy=policy), "onnxruntime", CPU).run(images[2:])
    assert torch.equal(found.exit, wanted.exit)
    assert torch.equal(found.output.argmax(dim=1), wanted.output.argmax(dim=1))
