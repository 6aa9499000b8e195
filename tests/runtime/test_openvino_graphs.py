"""Graphs as OpenVINO runs them best: a product each for queries, keys and values, and bytes from there on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.quant import QuantizedModel, QuantSettings, quantize
from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule
from maqee.quant.grids import UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.quant.ranges import minmax_grid
from maqee.runtime.export.graph_writer import GraphWriter
from maqee.runtime.export.layer_check import check_layers
from maqee.runtime.export.layer_graphs import write_attend
from maqee.runtime.export.segment_files import segment_graphs
from maqee.runtime.export.split_layers import split_layer
from maqee.runtime.openvino_models import start_model
from tests.helpers import randomize

LAST_BLOCKS = ("backbone.blocks.2.", "backbone.blocks.3.")  # behind the last exit
SHAPE = (2, 3, 11, 8)  # batch, heads, tokens, head width


@pytest.fixture(scope="module", params=["rtn", "erq"])
def quantized(request: pytest.FixtureRequest) -> QuantizedModel:
    """With every kind of LGViT head: depthwise convolutions and attention."""
    torch.manual_seed(0)
    model = add_exits(load_backbone("test-vit"), "lgvit", positions=(1, 2))
    randomize(model, std=0.3)
    return quantize(model, torch.randn(8, 3, 32, 32), request.param, QuantSettings(weight_bits=4, act_bits=4))


def test_shares_of_a_layer_side_by_side_are_the_layer(quantized: QuantizedModel) -> None:
    layer = quantized.layers["backbone.blocks.1.attn.qkv"]
    x = torch.randn(2, 5, layer.in_features)
    shares = split_layer(layer, 3)
    assert [share.out_features for share in shares] == [layer.out_features // 3] * 3
    assert torch.allclose(torch.cat([share(x) for share in shares], dim=-1), layer(x), rtol=1e-5, atol=1e-6)
    assert split_layer(layer, 1) == [layer]


def test_shares_of_a_layer_with_float_weights() -> None:
    layer = QuantLayer(nn.Linear(4, 6, bias=False), "layer", 4)
    layer.set_input(GridModule(UniformGrid(4, torch.tensor(0.2), torch.tensor(7.0))))
    x = torch.randn(3, 4)
    assert torch.allclose(torch.cat([share(x) for share in split_layer(layer, 2)], dim=-1), layer(x), atol=1e-6)


@pytest.mark.parametrize(("packed", "products"), [(True, 1), (False, 3)], ids=["onnxruntime", "openvino"])
def test_queries_keys_and_values_come_out_of_products_of_their_own(
    quantized: QuantizedModel, packed: bool, products: int
) -> None:
    network = quantized.model
    assert isinstance(network, EarlyExitModel)
    found = operators(segment_graphs(network, packed)[-1].model)
    last = {name: groups(layer) for name, layer in quantized.layers.items() if name.startswith(LAST_BLOCKS)}
    qkv = sum(count for name, count in last.items() if name.endswith("qkv"))
    classifier, attention = 1, 2 * 2
    assert found["MatMul"] == classifier + attention + sum(last.values()) + (products - 1) * qkv
    assert found["Split"] == (2 if packed else 0)


def groups(layer: QuantLayer) -> int:
    """Products that a layer takes in one piece."""
    state = layer.state()
    assert state is not None
    return int(state.scale.shape[1])


@pytest.mark.parametrize("packed", [True, False], ids=["onnxruntime", "openvino"])
def test_patches_do_not_become_a_picture_and_tokens_again(packed: bool) -> None:
    """The float embedding: pixels are moved once in front of its product, and nothing behind it."""
    model = EarlyExitModel(load_backbone("test-vit"), (), ()).eval()
    nodes = list(segment_graphs(model, packed)[0].model.graph.node)
    end = next(place for place, node in enumerate(nodes) if node.op_type == "LayerNormalization")
    assert [node.op_type for node in nodes[:end] if node.op_type in ("Transpose", "MatMul")] == ["Transpose", "MatMul"]


def test_every_layer_on_openvino_from_equal_inputs(quantized: QuantizedModel) -> None:
    """It multiplies by the inverse of a step, so that a number on the very border may get the other code."""
    found = check_layers(
        quantized,
        torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)),
        lambda model, inputs: list(start_model(model)(list(inputs.values()))),
        packed=False,
    )
    assert "heads.0.depthwise" in found
    assert float(np.median(list(found.values()))) < 1e-5
    assert max(found.values()) < 0.1


@pytest.mark.parametrize("bits", [4, 6, 7, 8])
@pytest.mark.parametrize("positive", [False, True], ids=["both signs", "positive values"])
def test_all_of_attention_on_openvino(bits: int, positive: bool) -> None:
    """Whether it runs on bytes (up to 6 bits, on processors that can) or not."""
    torch.manual_seed(bits)
    q, k, v = torch.randn(3, *SHAPE).unbind(0)
    v = v.abs() + 0.1 if positive else v
    attend = fitted(bits, q, k, v)
    wanted = attend(q, k, v)
    graph = GraphWriter(packed=False)
    one, other, mixed = (graph.add_input(name, ["batch", *SHAPE[1:]]) for name in "qkv")
    y = write_attend(graph, attend, one, other, mixed, None, SHAPE[-1])
    graph.add_output("y", y, ["batch", *SHAPE[1:]])
    (found,) = start_model(graph.model("attention"))([value.numpy() for value in (q, k, v)])
    apart = np.abs(found - wanted.numpy()) / float(wanted.abs().max())
    assert np.mean(apart < 1e-5) > 0.9, "more than a few probabilities have another code"
    assert apart.max() < 0.1


def fitted(bits: int, q: Tensor, k: Tensor, v: Tensor) -> QuantAttend:
    attend = QuantAttend("attend", bits)
    for name, x in (("q", q), ("k", k), ("v", v), ("p", attend.probabilities(q, k))):
        grid = minmax_grid(x.reshape(1, -1), bits)
        attend.grids[name] = GridModule(UniformGrid(bits, grid.scale.squeeze(), grid.zero.squeeze()))
    return attend


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)
