"""The early-exit model: running under a policy is choosing from all exits, without the work nobody needs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits import NEVER, EarlyExitModel, ExitHead, Policy, add_exits, heads
from maqee.models import TokenShape, load_backbone
from maqee.models.compiling import compile_each, undo_compile
from tests.helpers import chosen_exits, max_difference, parting_thresholds, randomize


@cache
def make(family: str, scheme: str) -> EarlyExitModel:
    # double precision: a batch of another size must not flip a decision by rounding
    model = randomize(add_exits(load_backbone(family), scheme), std=0.3).double()
    assert isinstance(model, EarlyExitModel)
    return model


@cache
def images(count: int) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(count), dtype=torch.float64)


def count_rows(model: EarlyExitModel) -> dict[int, int]:
    """Hook every block; the dictionary fills with the number of samples each one sees."""
    seen: dict[int, int] = {}
    for number, block in enumerate(model.backbone.blocks, start=1):

        def note(module: nn.Module, inputs: tuple[Tensor], output: Tensor, number: int = number) -> None:
            seen[number] = seen.get(number, 0) + inputs[0].shape[0]

        block.register_forward_hook(note)
    return seen


@given(
    family=st.sampled_from(["test-vit", "test-deit", "test-swin"]),
    scheme=st.sampled_from(["lgvit", "mlp"]),
    batch=st.sampled_from([1, 2, 7, 16]),
    quantiles=st.lists(st.floats(-0.2, 1.2), min_size=5, max_size=5),
)
def test_run_equals_choosing_from_all_exits(family: str, scheme: str, batch: int, quantiles: list[float]) -> None:
    model, x = make(family, scheme), images(batch)
    with torch.no_grad():
        outputs = model.forward_all(x).outputs
    confidences = torch.stack([model.confidence(output) for output in outputs])
    # Thresholds between the confidences that occur, so that every mixture of exits comes up.
    thresholds = []
    for row, quantile in zip(confidences[:-1], quantiles, strict=False):
        inside = row.quantile(min(max(quantile, 0.0), 1.0)).item()
        thresholds.append(0.0 if quantile < 0 else NEVER if quantile > 1 else inside + 1e-9)
    policy = Policy(tuple(thresholds))
    decision = model.run(x, policy)
    chosen = chosen_exits(policy, confidences[:-1])
    assert torch.equal(decision.exit, chosen)
    expected = torch.stack(outputs)[chosen, torch.arange(batch)]
    assert max_difference(decision.output, expected) < 1e-9
    assert max_difference(decision.confidence, confidences[chosen, torch.arange(batch)]) < 1e-6


def test_blocks_that_nobody_reaches_are_not_run() -> None:
    model = randomize(add_exits(load_backbone("test-vit"), "lgvit"))
    assert isinstance(model, EarlyExitModel)
    seen = count_rows(model)
    model.run(images(6).float(), Policy.same(0.0, 3))  # everyone leaves at the first exit, after block 1
    assert seen == {1: 6}


def test_each_block_sees_exactly_the_samples_that_reach_it() -> None:
    model = add_exits(load_backbone("test-vit"), "lgvit")
    randomize(model, std=0.3)
    x = images(16).float()
    with torch.no_grad():
        confidences = torch.stack([model.confidence(output) for output in model.forward_all(x).outputs])
    policy = Policy(parting_thresholds(confidences[:-1].t()))
    seen = count_rows(model)
    exits = model.run(x, policy).exit
    reached = [int((exits >= stage).sum()) for stage in range(4)]  # exits sit after blocks 1, 2, 3
    assert 0 < reached[1] < 16
    assert seen == {block + 1: count for block, count in enumerate(reached) if count}


def test_never_policy_is_the_backbone() -> None:
    model, x = make("test-vit", "lgvit"), images(4)
    decision = model.run(x, Policy.never(3))
    assert decision.exit.tolist() == [3] * 4
    assert torch.equal(decision.output, model(x))
    assert torch.equal(model(x, Policy.never(3)), model(x))


def test_forward_all_returns_blocks_on_request() -> None:
    model, x = make("test-swin", "mlp"), images(2)
    outputs, blocks = model.forward_all(x, blocks=True)
    assert len(blocks) == model.backbone.depth
    assert model.forward_all(x).blocks == []
    assert torch.equal(model.backbone.finish(blocks[-1]), outputs[-1])


class SumHead(ExitHead):
    """A head that reads three blocks, as a segmentation decoder does."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__()
        self.reads = tuple(range(1, shape.block))[-2:]
        self.linear = nn.Linear(shape.dim, num_classes)

    def forward(self, *tokens: Tensor) -> Tensor:
        assert len(tokens) == len(self.reads) + 1
        return self.linear(torch.stack([x.mean(dim=1) * (i + 1) for i, x in enumerate(tokens)]).sum(dim=0))

    def macs(self) -> int:
        return self.linear.in_features * self.linear.out_features


heads.register("test-sum")(SumHead)


def test_heads_may_read_earlier_blocks_and_replace_the_classifier() -> None:
    model = EarlyExitModel(load_backbone("test-vit"), (2, 3), ("test-sum", "test-sum"), final="test-sum")
    randomize(model, std=0.3).double()
    x = images(8)
    with torch.no_grad():
        outputs, blocks = model.forward_all(x, blocks=True)
        last = model.heads[2](blocks[1], blocks[2], blocks[3])
    assert torch.equal(outputs[-1], last)
    assert torch.equal(model(x), last)
    confidences = torch.stack([model.confidence(output) for output in outputs])
    policy = Policy(tuple(row.median().item() + 1e-9 for row in confidences[:-1]))
    decision = model.run(x, policy)
    chosen = chosen_exits(policy, confidences[:-1])
    assert len(set(chosen.tolist())) > 1
    assert torch.equal(decision.exit, chosen)
    assert max_difference(decision.output, torch.stack(outputs)[chosen, torch.arange(8)]) < 1e-9
    assert [part.kind for part in model.parts()].count("classifier") == 0


def test_save_and_load(tmp_path: Path) -> None:
    model = make("test-dinov2", "lgvit")
    model.save(tmp_path / "one")
    model.save(tmp_path / "two")
    again = EarlyExitModel.load(tmp_path / "one").double().eval()
    x = images(3)
    for one, two in zip(model.forward_all(x).outputs, again.forward_all(x).outputs, strict=True):
        assert torch.equal(one, two)
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"maqee-early-exit"', '"other"', "not 'maqee-early-exit'"),
        ('"version": 1', '"version": 9', "version 9"),
        ('"head": "mlp"', '"hed": "mlp"', "key 'exits'"),
        ('"head": "mlp"', '"head": "vit"', "key 'heads.0.block"),
    ],
)
def test_load_names_what_is_wrong(tmp_path: Path, before: str, after: str, message: str) -> None:
    add_exits(load_backbone("test-vit"), "mlp").save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(MaqeeError, match=message):
        EarlyExitModel.load(tmp_path)


@pytest.mark.parametrize("thresholds", [(float("nan"), 0.5), (-0.1, 0.5)])
def test_bad_thresholds(thresholds: tuple[float, float]) -> None:
    with pytest.raises(MaqeeError, match="Thresholds"):
        Policy(thresholds)


def test_policy_of_the_wrong_length() -> None:
    with pytest.raises(MaqeeError, match="2 thresholds, the model 3 exits"):
        make("test-vit", "mlp").run(images(1), Policy((0.5, 0.5)))


def test_policy_is_first_exit_at_least_as_sure_as_the_threshold() -> None:
    confidences = torch.tensor([[0.90, 0.5, 0.5, 0.1], [0.99, 0.8, 0.7, 0.1]])
    assert chosen_exits(Policy((0.9, 0.8)), confidences).tolist() == [0, 1, 2, 2]


@pytest.mark.slow
def test_compiled_pieces_agree_with_eager() -> None:
    model = add_exits(load_backbone("test-vit"), "local-1x1", positions=(2,))
    randomize(model, std=0.3)
    x = images(6).float()
    with torch.no_grad():
        confidence = model.confidence(model.forward_all(x).outputs[0])
    policy = Policy(parting_thresholds(confidence[:, None]))
    eager = model.run(x, policy)
    compile_each(model.compilable(), backend="aot_eager", dynamic=True)
    compiled = model.run(x, policy)
    undo_compile(model.compilable())
    assert "forward" not in vars(model.backbone.blocks[0])
    assert "with_features" not in vars(model.heads[0])
    assert torch.equal(eager.exit, compiled.exit)
    assert max_difference(eager.output, compiled.output) < 1e-5
