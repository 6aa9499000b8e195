"""Every exit head on every family: shapes, cost, and the details of the papers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maqee.exits import EarlyExitModel, ExitHead, add_exits, heads
from maqee.exits.lgvit import GlobalHead, LgvitHead, LocalHead, pick
from maqee.exits.vit_ee import CnnHead, EncoderHead
from maqee.models import Backbone, TokenShape, load_backbone
from maqee.models.layers import TokenDepthwise
from maqee.models.load import on_meta
from maqee.models.presets import presets
from maqee.quant import QuantSettings, quantize
from tests.helpers import count_head_macs, max_difference, randomize

FAMILIES = ("test-vit", "test-deit", "test-dinov2", "test-swin")
VIT_EE = {"mlp", "cnn-ignore", "cnn-add", "cnn-project", "vit", "mixer", "resmlp"}
LGVIT = {"local-3x3", "local-1x1", "global-s1", "global-s2", "global-s3"}
CLASSIFIERS = sorted(VIT_EE | LGVIT | {f"{kind}-raw" for kind in LGVIT})  # other heads have tests of their own


def build(kind: str, family: str, block: int = 1) -> tuple[ExitHead, TokenShape]:
    shape = load_backbone(family).token_shape(block)
    return heads[kind](shape, 10), shape


def test_registry_has_all_published_kinds() -> None:
    assert set(heads.names()) >= VIT_EE | LGVIT | {f"{kind}-raw" for kind in LGVIT}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_head_gives_logits_and_gradients(kind: str, family: str) -> None:
    head, shape = build(kind, family)
    randomize(head).train()
    logits = head(torch.randn(3, shape.tokens, shape.dim))
    assert logits.shape == (3, 10)
    logits.square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("family", ["vit-base", "deit-base-distilled", "swin-base"])
@pytest.mark.parametrize("kind", sorted(VIT_EE | LGVIT))
def test_macs_agree_with_the_flop_counter(kind: str, family: str) -> None:
    backbone = on_meta(presets[family])
    shape = backbone.token_shape(4)
    said, counted = count_head_macs(kind, shape, 1000)
    assert said == counted


def test_published_costs_in_blocks_of_vit_base() -> None:
    shape = on_meta(presets["vit-base"]).token_shape(4)
    block = 1.4540e9
    expected = {"mlp": 0.001, "cnn-ignore": 0.015, "cnn-project": 0.030, "vit": 1.0, "mixer": 1.28, "resmlp": 0.66,
                "local-3x3": 0.160, "local-1x1": 0.159, "global-s2": 0.082, "global-s3": 0.041}  # fmt: skip
    with torch.device("meta"):
        ratios = {kind: heads[kind](shape, 1000).macs() / block for kind in expected}
    for kind, ratio in ratios.items():
        assert ratio == pytest.approx(expected[kind], rel=0.02, abs=1e-3), kind


def test_encoder_head_starts_from_next_block_and_classifier() -> None:
    backbone = randomize(load_backbone("test-vit"))
    assert isinstance(backbone, Backbone)
    model = add_exits(backbone, "vit-ee", positions=(2,)).eval()
    images = torch.randn(2, 3, 32, 32)
    x = backbone.embedding(images)
    for block in backbone.blocks[:3]:
        x = block(x)
    # A head that copies block 3, the norm and the classifier says what the network cut after block 3 would say.
    assert max_difference(model.forward_all(images).outputs[0], backbone.finish(x)) < 1e-5


def test_encoder_head_at_the_end_of_a_swin_stage_starts_from_its_own_block() -> None:
    backbone = load_backbone("test-swin")
    model = add_exits(backbone, "vit-ee", positions=(2, 3))
    for index, source in ((0, backbone.blocks[1]), (1, backbone.blocks[3])):
        head = model.head(index)
        assert isinstance(head, EncoderHead)
        for name, tensor in head.block.state_dict().items():
            assert torch.equal(tensor, source.state_dict()[name]), name


def test_cnn_heads_merge_the_class_token_in_their_own_way() -> None:
    shape = load_backbone("test-vit").token_shape(1)
    tokens = torch.randn(2, shape.tokens, shape.dim)
    summary, patches = tokens[:, 0], tokens[:, 1:]
    merged = {}
    for kind in ("cnn-ignore", "cnn-add", "cnn-project"):
        head = heads[kind](shape, 10)
        assert isinstance(head, CnnHead)
        merged[kind] = head.merge(summary, patches)
    assert torch.equal(merged["cnn-ignore"], patches)
    assert torch.equal(merged["cnn-add"][:, 5], patches[:, 5] + summary)
    assert torch.equal(merged["cnn-project"][:, 5], torch.cat([patches[:, 5], summary], dim=-1))


def test_pick_takes_every_nth_patch_like_pooling_with_kernel_one() -> None:
    patches = torch.randn(2, 14 * 14, 8)
    for stride, count in ((1, 196), (2, 49), (3, 25)):
        picture = patches.transpose(1, 2).reshape(2, 8, 14, 14)
        pooled = F.avg_pool2d(picture, kernel_size=1, stride=stride).flatten(2).transpose(1, 2)
        picked = pick(patches, (14, 14), stride)
        assert picked.shape[1] == count
        assert torch.equal(picked, pooled)


def test_local_head_is_lgvits_convolution_written_with_conv2d() -> None:
    """1x1 conv, GELU, BN, depthwise 3x3, GELU, BN, 1x1 conv, BN, residual; pooled; class token added."""
    shape = load_backbone("test-vit").token_shape(1)
    head = randomize(LocalHead(shape, 10, kernel=3, normalize=False))
    assert isinstance(head, LocalHead)
    assert head.depthwise is not None
    tokens = torch.randn(2, shape.tokens, shape.dim)
    picture = tokens[:, 1:].transpose(1, 2).reshape(2, shape.dim, *shape.grid)

    def norm(x: torch.Tensor, bn: nn.BatchNorm1d) -> torch.Tensor:
        return F.batch_norm(x, bn.running_mean, bn.running_var, bn.weight, bn.bias, eps=1e-5)

    x = norm(F.gelu(F.conv2d(picture, head.expand.weight[:, :, None, None], head.expand.bias)), head.expand_norm)
    x = F.conv2d(x, head.depthwise.weight, head.depthwise.bias, padding=1, groups=shape.dim)
    x = norm(F.gelu(x), head.depthwise_norm)
    x = norm(F.conv2d(x, head.project.weight[:, :, None, None], head.project.bias), head.project_norm)
    pooled = (x + picture).mean(dim=(2, 3)) + tokens[:, 0]
    expected = F.linear(pooled, head.readout.linear.weight, head.readout.linear.bias)  # type: ignore[arg-type]
    assert max_difference(head(tokens), expected) < 1e-5


@pytest.mark.parametrize("kind", sorted(LGVIT))
@pytest.mark.parametrize("preset", ["test-vit", "test-deit", "test-swin"])
def test_mean_before_what_is_affine_is_the_mean_behind_it(preset: str, kind: str) -> None:
    """A float head at work pools first, and says what it says patch by patch; training goes the long way."""
    shape = load_backbone(preset).token_shape(1)
    head = randomize(heads[kind](shape, 10), std=0.3).double()
    assert isinstance(head, LgvitHead)
    tokens = torch.randn(3, shape.tokens, shape.dim, dtype=torch.float64)
    rows: list[int] = []
    head.affine_end.register_forward_hook(lambda _module, given, _output: rows.append(given[0].shape[1]))
    expected, features = head.with_features(tokens)
    assert torch.allclose(head(tokens), expected, rtol=1e-9, atol=1e-12)
    assert rows == [features.shape[1], 1 if shape.prefix_tokens else features.shape[1]]
    head.train()(tokens)
    assert rows[2:] == [features.shape[1]]


def test_a_quantized_head_rounds_every_patch() -> None:
    """The mean of rounded numbers is not the rounded mean: a head with quantized layers may not pool first."""
    model = randomize(add_exits(load_backbone("test-vit"), "lgvit"))
    assert isinstance(model, EarlyExitModel)
    images = torch.randn(4, 3, 32, 32)
    quantized = quantize(model, images, "rtn", QuantSettings(weight_bits=4, act_bits=4)).model
    assert isinstance(quantized, EarlyExitModel)
    seen = quantized.forward_all(images, blocks=True)
    for index, block in enumerate(quantized.positions):
        head = quantized.head(index)
        assert isinstance(head, LgvitHead)
        assert torch.equal(seen.outputs[index], head.with_features(seen.blocks[block - 1])[0])


@pytest.mark.slow
def test_compiled_depthwise_agrees_with_the_library_forward_and_backward() -> None:
    layer = TokenDepthwise(8)
    tokens = torch.randn(2, 12, 8, requires_grad=True)
    compiled = torch.compile(layer.forward, backend="aot_eager", fullgraph=True)
    results = []
    for forward in (layer.forward, compiled):
        layer.zero_grad()
        tokens.grad = None
        out = forward(tokens, (3, 4))
        out.square().sum().backward()
        assert layer.bias is not None
        results.append([out, tokens.grad, layer.weight.grad, layer.bias.grad])
    for one, other in zip(*results, strict=True):
        assert one is not None
        assert other is not None
        assert max_difference(one, other) < 1e-4


def test_global_head_is_attention_without_residual_or_query_bias() -> None:
    shape = load_backbone("test-vit").token_shape(1)
    head = randomize(GlobalHead(shape, 10, stride=2, normalize=False))
    assert isinstance(head, GlobalHead)
    assert "qkv.bias" not in head.attention.state_dict()
    assert head.attention.heads == 8
    tokens = torch.randn(2, shape.tokens, shape.dim)
    x = pick(tokens[:, 1:], shape.grid, 2)
    q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in head.attention.qkv(x).chunk(3, dim=-1))
    weights = torch.softmax(q @ k.transpose(-1, -2) * (shape.dim // 8) ** -0.5, dim=-1)
    mixed = head.attention.proj((weights @ v).transpose(1, 2).flatten(2))
    expected = head.readout.linear(mixed.mean(dim=1) + tokens[:, 0])
    assert max_difference(head(tokens), expected) < 1e-5


def test_distilled_heads_average_two_classifiers() -> None:
    shape = load_backbone("test-deit").token_shape(1)
    head = randomize(heads["local-1x1-raw"](shape, 10))
    assert isinstance(head, LocalHead)
    tokens = torch.randn(2, shape.tokens, shape.dim)
    pooled = head.transform(tokens[:, 2:]).mean(dim=1)
    one = head.readout.linear(pooled + tokens[:, 0])
    two = head.readout.distillation(pooled + tokens[:, 1])
    assert max_difference(head(tokens), (one + two) / 2) < 1e-6
