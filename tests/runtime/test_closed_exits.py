"""Exits that a plan closes are not there on any engine, in streams, in graphs and in what is exported."""

from __future__ import annotations

import json
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from torch import Tensor

import maqee
from maqee.exits import NEVER, Policy
from maqee.runtime.graphs import GraphedSegment
from maqee.runtime.outside import OutsideSegment
from maqee.tasks.classification import max_probability
from tests.runtime.makers import segmentation_model, small_model, write_compressed_run, write_trained_run
from tests.runtime.test_graphs import MemoryRecorder

ENGINES = ("onnxruntime", "openvino")
CHOICES = ((NEVER, 1), (0, NEVER), (NEVER, NEVER))  # 0 and 1 stand for the plan's own thresholds


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(24, 1, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, images: Tensor) -> Path:
    return write_compressed_run(tmp_path_factory.mktemp("run") / "run", small_model(), images)[0]


def closing(run: Path, choice: tuple[float, ...]) -> Policy:
    """The plan's policy with some exits closed."""
    own = maqee.load(run).policy.thresholds
    return Policy(tuple(NEVER if value == NEVER else own[int(value)] for value in choice))


@pytest.mark.parametrize("engine", ["torch", "reference", *ENGINES])
@pytest.mark.parametrize("choice", CHOICES, ids=["first", "second", "both"])
def test_run_and_streams(run: Path, images: Tensor, engine: str, choice: tuple[float, ...]) -> None:
    """The exits of the simulation, by their numbers among all exits."""
    policy, plain = closing(run, choice), maqee.load(run).model
    with torch.no_grad():
        sure = torch.stack([max_probability(output) for output in plain.forward_all(images).outputs[:-1]], dim=1)
    wanted = torch.from_numpy(policy.choose(sure.numpy()))
    assert len(set(wanted.tolist())) == 1 + len(policy.open)
    model = maqee.load(run, policy=policy, engine=engine)
    assert torch.equal(model.run(images).exit, wanted)
    answers = list(model.stream(images.split(7), batch=4))
    assert torch.equal(torch.cat([answer.exit for answer in answers]), wanted)
    told = model.predict(images)
    assert [found.exit for found in told] == [plain.exit_blocks[index] for index in wanted.tolist()]


@pytest.mark.parametrize("engine", ENGINES)
def test_only_what_a_policy_takes_is_made_ready(run: Path, images: Tensor, engine: str) -> None:
    """Another policy may open an exit again; its road is then made."""
    model = maqee.load(run, policy=closing(run, (NEVER, 1)), engine=engine)
    segments = model.model.segments
    assert all(isinstance(segment, OutsideSegment) for segment in segments)
    assert ["ready" in vars(segment) for segment in segments] == [False, False, True]
    opened = model.with_policy(maqee.load(run).policy)
    assert torch.equal(opened.run(images).exit, maqee.load(run).run(images).exit)
    assert ["ready" in vars(segment) for segment in segments] == [True, True, True]
    assert torch.equal(model.run(images).exit, maqee.load(run, policy=model.policy).run(images).exit)


@pytest.mark.parametrize("engine", ENGINES)
def test_another_confidence_on_roads_that_are_made_later(run: Path, images: Tensor, engine: str) -> None:
    model = maqee.load(run, engine=engine)
    model.model.use_confidence(lambda output: torch.full((len(output),), 0.75))
    found = model.with_policy((NEVER, 0.5)).run(images)
    assert set(found.confidence.tolist()) == {0.75}
    assert set(found.exit.tolist()) == {1}


def test_graphs_are_recorded_without_closed_heads() -> None:
    """A decoder at the end reads what the long road keeps."""
    model, recorder = segmentation_model().double(), MemoryRecorder()
    images = torch.randn(5, 3, 32, 32, dtype=torch.float64)
    policy = Policy((NEVER, NEVER))
    expected = model.run(images, policy)
    model.segments = [GraphedSegment(segment, recorder) for segment in model.segments]
    for _ in range(2):
        decision = model.run(images, policy)
        assert torch.equal(decision.exit, expected.exit)
        assert torch.allclose(decision.output, expected.output, atol=1e-9)
    assert recorder.replays == 2, "one road, and the graph of it is kept"


@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_an_exported_folder(run: Path, images: Tensor, format: str, tmp_path: Path) -> None:
    model = maqee.load(run, policy=closing(run, (NEVER, 1)))
    folder = maqee.export(model, tmp_path / "out", format).folder
    about = json.loads((folder / "manifest.json").read_text())
    assert [segment["block"] for segment in about["segments"]] == [2, 4]
    assert about["thresholds"] == [model.policy.thresholds[1]]
    spec = spec_from_file_location("exported_run", folder / "run.py")
    assert spec is not None
    assert spec.loader is not None
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    blocks = [block for _, block, _ in program.Model(folder).run(images.numpy())]
    assert blocks == [model.model.exit_blocks[index] for index in model.run(images).exit.tolist()]
    assert set(blocks) == {2, 4}


def test_a_trained_run_is_exported_at_full_depth(tmp_path: Path) -> None:
    """It has no policy, so that nobody would leave early."""
    folder = maqee.export(write_trained_run(tmp_path / "run", small_model()), tmp_path / "out").folder
    about = json.loads((folder / "manifest.json").read_text())
    assert ([segment["block"] for segment in about["segments"]], about["thresholds"]) == ([4], [])


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed on this machine")
def test_kernels_lead_over_closed_exits(run: Path, images: Tensor) -> None:
    """On Triton's interpreter where there is no GPU; the network between exits is what kernels made of it."""
    import triton

    from maqee.runtime.kernels.swapping import KernelSegment

    if not torch.cuda.is_available() and not triton.knobs.runtime.interpret:
        pytest.skip("neither a GPU nor Triton's interpreter is there")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = maqee.load(run, policy=closing(run, (NEVER, 1)), engine="triton", device=device)
    first, second = model.model.roads(model.policy)
    assert isinstance(first.segment, KernelSegment)
    assert (first.exit, first.segment.first, second.exit) == (1, 1, 2)
    found = model.run(images[:4].to(device))
    assert torch.equal(found.exit.cpu(), maqee.load(run, policy=model.policy).run(images[:4]).exit)
