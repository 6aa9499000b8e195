"""What each training stage changes, and what it must leave alone."""

from __future__ import annotations

import pytest
import torch

from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.tasks import Classification
from maqee.training import exit_losses as losses
from maqee.training.stages import ClassifierWise, Finetune, Joint, LgvitHeads, Stage

IMAGES, LABELS = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])


def model(scheme: str = "lgvit", family: str = "test-vit") -> EarlyExitModel:
    return add_exits(load_backbone(family), scheme)


def changed_by(stage: Stage) -> set[str]:
    """Names of the parameters that get a gradient."""
    trained = dict(stage.trained_parameters())
    for name, parameter in stage.named_parameters():
        parameter.requires_grad_(name in trained)
    loss, _ = stage.train()(IMAGES, LABELS, 1)
    loss.backward()
    return {name for name, parameter in stage.named_parameters() if parameter.grad is not None}


def test_finetune_trains_the_backbone_only() -> None:
    names = changed_by(Finetune(model(), Classification()))
    assert names
    assert not any("heads" in name for name in names)


@pytest.mark.parametrize("stage", [ClassifierWise, LgvitHeads])
@pytest.mark.parametrize("family", ["test-vit", "test-deit", "test-swin"])
def test_frozen_stages_train_heads_only(stage: type[Stage], family: str) -> None:
    network = model(family=family)
    names = changed_by(stage(network, Classification()))
    assert {name.split(".")[2] for name in names} == {str(index) for index in range(network.num_exits)}
    assert all(name.startswith("model.heads.") for name in names)


def test_joint_trains_everything() -> None:
    stage = Joint(model(), Classification())
    assert changed_by(stage) == {name for name, _ in stage.named_parameters()}


def test_joint_alternates() -> None:
    stage = Joint(model(), Classification()).eval()
    outputs = stage.exits.forward_all(IMAGES).outputs
    values = [torch.nn.functional.cross_entropy(output, LABELS) for output in outputs]
    even, odd = stage(IMAGES, LABELS, 0)[0], stage(IMAGES, LABELS, 1)[0]
    assert even.item() == pytest.approx(values[-1].item(), rel=1e-5)
    weighted = sum(weight * value.item() for weight, value in zip((1, 2, 3, 4), values, strict=True)) / 10
    assert odd.item() == pytest.approx(weighted, rel=1e-5)


def test_joint_distillation_pulls_exits_to_the_final_output() -> None:
    stage = Joint(model(), Classification(), distillation=1.0).eval()
    outputs = stage.exits.forward_all(IMAGES).outputs
    imitation = [stage.task.distillation(output, outputs[-1], 2.0).mean().item() for output in outputs[:-1]]
    _, pieces = stage(IMAGES, LABELS, 1)
    assert [pieces[f"loss@{block}"].item() for block in (1, 2, 3)] == pytest.approx(imitation, rel=1e-4)


def test_heads_that_learn_from_the_final_output_alone() -> None:
    network = model()
    outputs = network.eval().forward_all(IMAGES).outputs
    imitation = [Classification().distillation(output, outputs[-1], 2.0).mean().item() for output in outputs[:-1]]
    labels = [torch.nn.functional.cross_entropy(output, LABELS).item() for output in outputs[:-1]]
    for share in (0.0, 0.25, 1.0):
        _, pieces = LgvitHeads(network, Classification(), distillation=share).eval()(IMAGES, LABELS, 0)
        expected = [(1 - share) * hard + share * soft for hard, soft in zip(labels, imitation, strict=True)]
        assert [pieces[f"loss@{block}"].item() for block in (1, 2, 3)] == pytest.approx(expected, rel=1e-4)


def test_heads_do_not_influence_each_other_classifier_wise() -> None:
    network = model("mlp")
    stage = ClassifierWise(network, Classification())
    changed_by(stage)
    first = network.heads[0].readout.linear.weight.grad  # type: ignore[union-attr]
    network.zero_grad()
    with torch.no_grad():
        network.heads[2].readout.linear.weight.mul_(5)  # type: ignore[union-attr, operator]
    changed_by(stage)
    assert torch.equal(first, network.heads[0].readout.linear.weight.grad)  # type: ignore[union-attr, arg-type]


def test_lgvit_second_stage_is_the_sum_of_its_losses() -> None:
    network = add_exits(load_backbone("test-vit"), "lgvit", positions=(1, 2, 3))
    stage = LgvitHeads(network, Classification()).eval()
    loss, pieces = stage(IMAGES, LABELS, 0)
    _, blocks = network.forward_all(IMAGES, blocks=True)
    teacher = network.backbone.finish(blocks[-1])
    last = network.backbone.norm(blocks[-1])[:, 1:]
    found = [network.heads[index].with_features(blocks[index]) for index in range(3)]  # type: ignore[operator]
    expected = torch.zeros(())
    for output, _ in found:
        hard = torch.nn.functional.cross_entropy(output, LABELS)
        expected = expected + 0.7 * hard + 0.3 * losses.soft_target_loss(output, teacher)
    # local heads 1 and 2 imitate all patches, the global head (stride 2) every second one; head 1 imitates head 2
    hetero = losses.imitate_backbone(found[0][1], last) + losses.imitate_backbone(found[1][1], last)
    strided = last.unflatten(1, (4, 4))[:, ::2, ::2].flatten(1, 2)
    hetero = hetero + losses.imitate_backbone(found[2][1], strided)
    homo = losses.imitate_features(found[0][1], found[1][1])
    assert pieces["hetero"].item() == pytest.approx(hetero.item(), rel=1e-4)
    assert pieces["homo"].item() == pytest.approx(homo.item(), rel=1e-4)
    assert loss.item() == pytest.approx((expected + 0.01 * (hetero + homo)).item(), rel=1e-4)
