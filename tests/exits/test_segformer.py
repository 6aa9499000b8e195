"""The SegFormer decoder: its blocks, its arithmetic written with convolutions, its cost, and early exit with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from maqee.errors import MaqeeError
from maqee.evaluation.cost_report import cost
from maqee.exits import EarlyExitModel, Policy, add_exits, heads
from maqee.exits.segformer import SegformerHead, spread
from maqee.models import load_backbone
from maqee.models.load import on_meta
from maqee.models.presets import presets
from maqee.quant.places import find_places
from maqee.tasks import tasks
from tests.helpers import chosen_exits, invoke, max_difference, parting_thresholds, randomize

FAMILIES = ("test-vit", "test-deit", "test-dinov2")
CONFIDENCE = tasks["segmentation"].confidence


def decoder(family: str = "test-vit", block: int = 4) -> SegformerHead:
    head = heads["segformer"](load_backbone(family).token_shape(block), 7)
    assert isinstance(head, SegformerHead)
    return head


def model(family: str = "test-vit", positions: tuple[int, ...] = (1, 2, 3)) -> EarlyExitModel:
    network = add_exits(load_backbone(family), "segformer", positions, confidence=CONFIDENCE)
    randomize(network, std=0.3)
    return network


def test_blocks_are_spread_as_published() -> None:
    wanted = {4: (1, 2, 3, 4), 6: (1, 3, 5, 6), 8: (2, 4, 6, 8), 10: (2, 5, 7, 10), 12: (3, 6, 9, 12)}
    assert {block: spread(block) for block in wanted} == wanted
    for block in range(1, 41):
        blocks = spread(block)
        assert len(blocks) == 4
        assert blocks[-1] == block
        assert 1 <= blocks[0] <= blocks[1] <= blocks[2] <= block


def test_exits_of_a_twelve_block_model_read_those_blocks() -> None:
    with torch.device("meta"):
        network = add_exits(on_meta(presets["vit-small"]), "segformer")
    read = [(*network.head(index).reads, block) for index, block in enumerate(network.exit_blocks)]
    assert read == [spread(block) for block in (4, 6, 8, 10, 12)]
    assert network.final_kind == "segformer"


@pytest.mark.parametrize("family", FAMILIES)
def test_decoder_is_segformers_written_with_convolutions(family: str) -> None:
    head = decoder(family)
    randomize(head)
    shape = head.shape
    tokens = [torch.randn(2, shape.tokens, shape.dim) for _ in range(4)]
    maps: list[Tensor] = []
    for index, x in enumerate(tokens):
        norm, project = head.norms[index], head.projections[index]
        assert isinstance(norm, nn.LayerNorm)
        assert isinstance(project, nn.Linear)
        picture = norm(x[:, shape.prefix_tokens :]).transpose(1, 2).reshape(2, shape.dim, *shape.grid)
        maps.insert(0, F.conv2d(picture, project.weight[:, :, None, None], project.bias))  # the deepest comes first
    fused = F.conv2d(torch.cat(maps, dim=1), head.fuse.weight[:, :, None, None])
    bn = head.fuse_norm
    fused = F.relu(F.batch_norm(fused, bn.running_mean, bn.running_var, bn.weight, bn.bias, eps=1e-5))
    assert isinstance(head.classify, nn.Linear)
    expected = F.conv2d(fused, head.classify.weight[:, :, None, None], head.classify.bias)
    assert expected.shape == (2, 7, *shape.grid)
    assert max_difference(head(*tokens), expected) < 1e-5


def test_dropout_takes_whole_channels_in_training_only() -> None:
    head = decoder()
    head.classify = nn.Identity()
    tokens = [torch.randn(8, head.shape.tokens, head.shape.dim) for _ in range(4)]
    assert torch.equal(head.eval()(*tokens), head(*tokens))
    picture = head.train()(*tokens)
    silent = (picture == 0).flatten(2).all(dim=2)
    assert 0 < silent.float().mean() < 0.3


def test_gradients_reach_every_parameter() -> None:
    network = model().train()
    total = torch.stack([output.square().mean() for output in network.forward_all(torch.randn(2, 3, 32, 32)).outputs])
    total.sum().backward()
    for name, parameter in network.named_parameters():
        if not name.startswith(("backbone.norm", "backbone.head")):  # the final decoder takes their place
            assert parameter.grad is not None, name


def test_norms_start_from_the_backbones() -> None:
    backbone = load_backbone("test-vit")
    randomize(backbone)
    network = add_exits(backbone, "segformer", (2,))
    for head in network.heads:
        assert isinstance(head, SegformerHead)
        for norm in head.norms:
            assert isinstance(norm, nn.LayerNorm)
            assert isinstance(backbone.norm, nn.LayerNorm)
            assert torch.equal(norm.weight, backbone.norm.weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_running_under_a_policy_is_choosing_among_all_outputs(family: str) -> None:
    network = model(family)
    images = torch.randn(12, 3, 32, 32)
    with torch.inference_mode():
        outputs = torch.stack(network.forward_all(images).outputs)
    assert outputs.shape == (4, 12, 10, 4, 4)
    confidence = torch.stack([CONFIDENCE(output) for output in outputs])
    policy = Policy(parting_thresholds(confidence[:-1].t()))
    chosen = chosen_exits(policy, confidence[:-1])
    decision = network.run(images, policy)
    assert torch.equal(decision.exit, chosen)
    assert len(set(chosen.tolist())) > 2
    assert max_difference(decision.output, outputs[chosen, torch.arange(12)]) < 1e-4
    assert max_difference(decision.confidence, confidence[chosen, torch.arange(12)]) < 1e-5


def test_saved_and_loaded_again(tmp_path: Path) -> None:
    network, images = model(), torch.randn(2, 3, 32, 32)
    network.save(tmp_path)
    again = EarlyExitModel.load(tmp_path, CONFIDENCE).eval()
    assert again.final_kind == "segformer"
    for one, other in zip(network.forward_all(images).outputs, again.forward_all(images).outputs, strict=True):
        assert torch.equal(one, other)


def test_model_with_a_final_decoder_and_no_early_exit() -> None:
    network = EarlyExitModel(load_backbone("test-vit"), (), (), "segformer", CONFIDENCE).eval()
    images = torch.randn(2, 3, 32, 32)
    assert network(images).shape == (2, 10, 4, 4)
    assert network.run(images, Policy(())).exit.tolist() == [0, 0]


def test_a_model_without_exits_is_its_backbone() -> None:
    backbone, images = load_backbone("test-vit").eval(), torch.randn(2, 3, 32, 32)
    network = EarlyExitModel(backbone, (), ()).eval()
    decision = network.run(images, Policy(()))
    assert decision.exit.tolist() == [0, 0]
    assert torch.equal(decision.output, backbone(images))
    with pytest.raises(MaqeeError, match="No exits were asked for: give positions within 1"):
        add_exits(backbone, "mlp", positions=())


def test_swin_is_refused() -> None:
    with pytest.raises(MaqeeError, match="plain ViT"):
        add_exits(load_backbone("test-swin"), "segformer")


def test_every_layer_of_a_decoder_can_be_quantized() -> None:
    names = [place.name for place in find_places(model()) if place.role == "head"]
    assert len(names) == 4 * 6  # four projections, fusion and classes, in four decoders


# --- cost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["segformer", "segformer-768"])
@pytest.mark.parametrize("classes", [0, 150])
def test_macs_agree_with_the_flop_counter(kind: str, classes: int) -> None:
    shape = on_meta(presets["vit-small"]).token_shape(8)
    with torch.device("meta"):
        head = heads[kind](shape, classes).eval()
        tokens = [torch.randn(1, shape.tokens, shape.dim) for _ in range(4)]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        head(*tokens)
    assert counter.get_total_flops() == 2 * head.macs()


def test_published_cost_of_vit_base_with_its_decoder() -> None:
    """The paper's 1.89E13 leaves the convolution to the classes out; with 150 classes it is 1.8955e13."""
    assert cost("vit-base", final="segformer", num_classes=0).bops == pytest.approx(1.893e13, rel=1e-3)
    assert cost("vit-base", final="segformer-768", num_classes=0).bops == pytest.approx(1.893e13, rel=1e-3)
    assert cost("vit-base", final="segformer", num_classes=11).bops == pytest.approx(1.893e13, rel=1e-3)
    assert cost("vit-base", final="segformer", num_classes=150).bops == pytest.approx(1.8955e13, rel=1e-4)


def test_cost_on_the_command_line() -> None:
    result = invoke("cost", "vit-base", "--final", "segformer", "--classes", "0")
    assert result.exit_code == 0, result.output
    assert "1.8932e+13" in result.output
    result = invoke("cost", "vit-base", "--exits", "segformer", "--classes", "150")
    assert result.output.count("head (segformer)") == 5
    assert "classifier" not in result.output
    assert invoke("cost", "vit-base", "--final", "segfromer").exit_code == 2
