"""Closed exits are not there: roads lead over them, their heads are not run, and exits keep their numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits import NEVER, EarlyExitModel, Policy, add_exits
from maqee.exits.segment import Segment
from maqee.models import load_backbone
from maqee.tasks import tasks
from tests.helpers import chosen_exits, max_difference, parting_thresholds, randomize


def lgvit() -> EarlyExitModel:
    """Heads of both kinds after blocks 1, 2 and 3 of four."""
    return add_exits(load_backbone("test-vit"), "lgvit")


def segformer() -> EarlyExitModel:
    """Decoders that read earlier blocks after blocks 1, 2 and 3, and one at the end."""
    confidence = tasks["segmentation"].confidence
    return add_exits(load_backbone("test-vit"), "segformer", positions=(1, 2, 3), confidence=confidence)


def swin() -> EarlyExitModel:
    """Patches are merged between blocks."""
    return add_exits(load_backbone("test-swin"), "mlp", positions=(1, 2, 3))


def count_heads(model: EarlyExitModel) -> list[int]:
    """Hook every early head; the list fills with the number of samples that each one sees."""
    seen = [0] * model.num_exits
    for index in range(model.num_exits):

        def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, index: int = index) -> None:
            seen[index] += inputs[0].shape[0]

        model.head(index).register_forward_hook(note)
    return seen


@pytest.mark.parametrize("build", [lgvit, segformer, swin])
def test_every_choice_of_closed_exits(build: Callable[[], EarlyExitModel]) -> None:
    """Answers, exits and confidences are those of all outputs, and an open head sees those that reach it."""
    model = build()
    randomize(model, std=0.3).double()
    images = torch.randn(12, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        outputs = model.forward_all(images).outputs
    confidences = torch.stack([model.confidence(output) for output in outputs])
    parting = parting_thresholds(confidences[:-1].t())
    seen, rows = count_heads(model), torch.arange(12)
    for thresholds in product(*((value, NEVER) for value in parting)):
        policy = Policy(thresholds)
        chosen = chosen_exits(policy, confidences[:-1])
        seen[:] = [0] * 3
        decision = model.run(images, policy)
        assert torch.equal(decision.exit, chosen)
        assert max_difference(decision.output, torch.stack(outputs)[chosen, rows]) < 1e-9
        assert max_difference(decision.confidence, confidences[chosen, rows]) < 1e-6
        reached = [int((chosen >= index).sum()) for index in range(3)]
        assert seen == [0 if index in policy.closed else reached[index] for index in range(3)]


def test_roads_by_hand() -> None:
    """Exits after blocks 1, 2 and 3 of four; decoders read the blocks 1, 1, 1; 1, 1, 2; 1, 1, 2 and 1, 2, 3 as well."""
    model = segformer()
    assert [road.exit for road in model.roads(Policy((0.5, 0.5, 0.5)))] == [0, 1, 2, 3]
    assert [road.segment for road in model.roads(Policy((0.5, 0.5, 0.5)))] == model.segments

    def told(policy: Policy) -> list[tuple[int, int, int, list[int]]]:
        found = []
        for index, segment in model.roads(policy):
            assert isinstance(segment, Segment)
            found.append((index, segment.first, segment.last, sorted(segment.read)))
        return found

    assert told(Policy((NEVER, 0.5, NEVER))) == [(1, 1, 2, [1, 2, 3]), (3, 3, 4, [1, 2, 3])]
    assert told(Policy((0.5, NEVER, NEVER))) == [(0, 1, 1, [1, 2, 3]), (3, 2, 4, [1, 2, 3])]
    assert told(Policy.never(3)) == [(3, 1, 4, [1, 2, 3])]
    headless = EarlyExitModel(load_backbone("test-vit"), (1, 3), ("mlp", "segformer"))
    [(_, road)] = headless.roads(Policy.never(2))
    assert isinstance(road, Segment)
    assert (road.first, road.last, road.read) == (1, 4, frozenset())  # what closed heads read is not kept
    with pytest.raises(MaqeeError, match="2 thresholds, the model 3 exits"):
        model.roads(Policy((0.5, 0.5)))


def test_roads_are_made_once_and_anew_for_other_segments() -> None:
    model = lgvit()
    policy = Policy((NEVER, 0.5, 0.5))
    roads = model.roads(policy)
    assert model.roads(Policy((NEVER, 0.7, 0.1))) is roads
    assert roads[1].segment is model.segments[2], "what no closed exit changes stays"
    model.segments = [segment.over_closed(index + 1, frozenset((1,))) for index, segment in enumerate(model.segments)]
    assert model.roads(policy)[0].segment is not roads[0].segment


def test_another_confidence_reaches_all_roads() -> None:
    model, images = lgvit(), torch.randn(3, 3, 32, 32)
    policy = Policy((NEVER, 0.5, NEVER))
    model.run(images, policy)
    model.use_confidence(lambda output: torch.full((len(output),), 0.75))
    decision = model.run(images, policy)
    assert decision.confidence.tolist() == [0.75] * 3
    assert decision.exit.tolist() == [1] * 3
