"""Modules with kernels in their place, one kind after the other; what has none is named with the reason."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from torch import nn

from maqee.exits.lgvit import GlobalHead, LocalHead
from maqee.exits.segformer import SegformerHead
from maqee.exits.vit_ee import MlpHead
from maqee.models.layers import Attention, Mlp, Readout
from maqee.models.swin import SwinBlock
from maqee.models.vit import Block, Embedding
from maqee.quant.layer import QuantLayer
from maqee.runtime.kernels.attention import MOST_TOKENS, MOST_WIDTH
from maqee.runtime.kernels.branches import (
    Added,
    BetweenHalves,
    KernelAttention,
    KernelLinear,
    KernelMlp,
    KernelPatches,
    WindowHalf,
)
from maqee.runtime.kernels.embedding import KernelEmbedding
from maqee.runtime.kernels.fitness import Operands, store_depthwise, store_layer, store_operands
from maqee.runtime.kernels.lgvit_heads import KernelFeaturesHead, KernelGlobalHead, KernelLocalHead, LocalLayers
from maqee.runtime.kernels.readouts import POOLED, PooledReadout
from maqee.runtime.kernels.segformer_head import KernelSegformerHead
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.windows import Windows

THROUGHOUT, IN_ONE = "codes throughout", ", norm and sum in the same kernels"
M = TypeVar("M", bound=nn.Module)


class Line(NamedTuple):
    """How one part of a network is computed: the kernels that do it, or why it is simulated."""

    name: str
    how: str


class Swapper:
    """Puts kernels into the place of modules.

    Args:
        half_tokens: whether tokens travel in float16.

    Attributes:
        lines: what became of each.
    """

    def __init__(self, half_tokens: bool = False) -> None:
        self.half_tokens = half_tokens
        self.lines: list[Line] = []
        self._stored: dict[nn.Module, StoredWeights | str] = {}

    def swap(self, module: nn.Module, name: str) -> nn.Module:
        """The module with kernels in it; itself where there is nothing to change."""
        if isinstance(module, Embedding):
            return self._embedding(module, name)
        if isinstance(module, Block):
            return self._block(module, name)
        if isinstance(module, SwinBlock):
            return self._swin_block(module, name)
        if type(module) is Attention:  # not the one with windows, which belongs to its block
            return self._attention(module, name, None)
        if isinstance(module, LocalHead):
            return self._local_head(module, name)
        if isinstance(module, GlobalHead):
            return self._global_head(module, name)
        if isinstance(module, SegformerHead):
            return self._segformer_head(module, name)
        if isinstance(module, MlpHead) and module.readout.kind in POOLED:
            readout = self.swap(module.readout, f"{name}.readout")
            assert isinstance(readout, Readout)
            return PooledReadout(module.norm, readout)
        if isinstance(module, QuantLayer):
            return self._layer(module, name)
        children = {child: self.swap(inner, f"{name}.{child}") for child, inner in module.named_children()}
        return with_children(module, children)

    def _store(self, layer: nn.Module) -> StoredWeights | str:
        """The layer as kernels read it; several of them share one copy."""
        if layer not in self._stored:
            self._stored[layer] = store_layer(layer)
        return self._stored[layer]

    def _note(self, name: str, how: str) -> None:
        self.lines.append(Line(name, how))

    def _layer(self, layer: QuantLayer, name: str) -> nn.Module:
        stored = self._store(layer)
        if isinstance(stored, str):
            self._note(name, f"simulated: it {stored}")
            return layer
        self._note(name, f"codes, {'two sums' if stored.groups > 1 else 'one sum'}")
        return KernelPatches(stored, layer.inner) if isinstance(layer.inner, nn.Conv2d) else KernelLinear(stored)

    def _embedding(self, embedding: Embedding, name: str) -> nn.Module:
        patch = self.swap(embedding.patch, f"{name}.patch")
        stored = self._store(embedding.patch)
        return KernelEmbedding(embedding, patch, None if isinstance(stored, str) else stored, self.half_tokens)

    def _block(self, block: Block, name: str) -> nn.Module:
        if not all(isinstance(scale, nn.Identity) for scale in (block.scale1, block.scale2)):
            children = {child: self.swap(inner, f"{name}.{child}") for child, inner in block.named_children()}
            return self._in_stream(with_children(block, children))
        return nn.Sequential(
            self._attention(block.attn, f"{name}.attn", block.norm1), self._mlp(block.mlp, f"{name}.mlp", block.norm2)
        )

    def _in_stream(self, part: nn.Module) -> nn.Module:
        """A part that adds to the stream in float32, between whatever tokens travel in."""
        return BetweenHalves(part) if self.half_tokens else part

    def _attention(self, attention: Attention, name: str, norm: nn.LayerNorm | None) -> nn.Module:
        """Attention, with the norm in front of it and added to the stream where a norm is given."""
        stored, before = self._stored_attention(attention), len(self.lines)
        layers = self._layer_by_layer(attention, name)
        plain = layers if norm is None else self._in_stream(Added(norm, layers))
        if isinstance(stored, str):
            self._note(f"{name}.attend", f"simulated: {stored}")
            return plain
        del self.lines[before:]
        self._note(name, THROUGHOUT if norm is None else f"{THROUGHOUT}{IN_ONE}")
        qkv, operands, proj = stored
        adds = norm is not None
        return KernelAttention(qkv, operands, proj, attention.heads, norm, adds, plain, adds and self.half_tokens)

    def _layer_by_layer(self, attention: Attention, name: str) -> Attention:
        """Attention whose layers alone have kernels."""
        layers = {child: self.swap(attention.get_submodule(child), f"{name}.{child}") for child in ("qkv", "proj")}
        return with_children(attention, layers)

    def _stored_attention(self, attention: Attention) -> tuple[StoredWeights, Operands, StoredWeights] | str:
        """Its first layer, the grids of its product and its last layer; or a few words on why there is no kernel."""
        qkv, proj, operands = self._store(attention.qkv), self._store(attention.proj), store_operands(attention.attend)
        if isinstance(operands, str):
            return f"it {operands}"
        if isinstance(qkv, str) or isinstance(proj, str) or proj.groups > 1:
            return "the layers around it do not make or read codes"
        if attention.proj.in_features // attention.heads > MOST_WIDTH:
            return f"its heads are wider than {MOST_WIDTH}"
        return qkv, operands, proj

    def _swin_block(self, block: SwinBlock, name: str) -> nn.Module:
        return nn.Sequential(self._window_half(block, f"{name}.attn"), self._mlp(block.mlp, f"{name}.mlp", block.norm2))

    def _window_half(self, block: SwinBlock, name: str) -> nn.Module:
        """Attention in windows, with the norm in front of it, added to the stream."""
        attention, windows, stored = block.attn, Windows.of(block), self._stored_attention(block.attn)
        if windows is None:
            stored = "the picture is filled up to whole windows"
        elif windows.tokens > MOST_TOKENS:
            stored = f"its windows have more than {MOST_TOKENS} tokens"
        if isinstance(stored, str):
            half = WindowHalf(with_children(block, {"attn": self._layer_by_layer(attention, name)}))
            self._note(f"{name}.attend", f"simulated: {stored}")
            return half
        self._note(name, f"{THROUGHOUT}{IN_ONE}")
        qkv, operands, proj = stored
        return KernelAttention(qkv, operands, proj, attention.heads, block.norm1, True, None, windows=windows)

    def _local_head(self, head: LocalHead, name: str) -> nn.Module:
        expand, project = self._store(head.expand), self._store(head.project)
        depthwise = None if head.depthwise is None else store_depthwise(head.depthwise)
        readout = self.swap(head.readout, f"{name}.readout")
        fits = isinstance(project, StoredWeights) and project.groups == 1
        if isinstance(expand, str) or isinstance(project, str) or isinstance(depthwise, str) or not fits:
            layers = [child for child in ("expand", "depthwise", "project") if getattr(head, child) is not None]
            children = {child: self.swap(head.get_submodule(child), f"{name}.{child}") for child in layers}
            return with_children(head, {"readout": readout, **children})
        self._note(name, THROUGHOUT)
        stored = LocalLayers(expand, depthwise, project)
        if head.shape.prefix_tokens:
            return KernelLocalHead(head, readout, stored)
        assert isinstance(readout, Readout)
        return KernelFeaturesHead(head, readout, stored)

    def _global_head(self, head: GlobalHead, name: str) -> nn.Module:
        children = {child: self.swap(inner, f"{name}.{child}") for child, inner in head.named_children()}
        plain, attention = with_children(head, children), children["attention"]
        if not isinstance(attention, KernelAttention) or not head.shape.prefix_tokens:
            return plain
        return KernelGlobalHead(head, children["readout"], attention, plain)

    def _segformer_head(self, head: SegformerHead, name: str) -> nn.Module:
        children = {child: self.swap(inner, f"{name}.{child}") for child, inner in head.named_children()}
        swapped, layers = with_children(head, children), [self._store(layer) for layer in head.projections]
        assert isinstance(swapped, SegformerHead)
        stored = [layer for layer in layers if isinstance(layer, StoredWeights)]
        return KernelSegformerHead(swapped, stored) if len(stored) == len(layers) else swapped

    def _mlp(self, mlp: Mlp, name: str, norm: nn.LayerNorm) -> nn.Module:
        fc1, fc2 = self._store(mlp.fc1), self._store(mlp.fc2)
        if isinstance(fc1, str) or isinstance(fc2, str) or fc2.groups > 1:
            children = {child: self.swap(inner, f"{name}.{child}") for child, inner in mlp.named_children()}
            return self._in_stream(Added(norm, with_children(mlp, children)))
        self._note(name, f"{THROUGHOUT}{IN_ONE}")
        return KernelMlp(norm, fc1, fc2, self.half_tokens)


def with_children(module: M, children: Mapping[str, nn.Module]) -> M:
    """A copy with other children that shares parameters and buffers; the module itself where no child is another."""
    if all(module._modules[name] is child for name, child in children.items()):
        return module
    changed = copy.copy(module)
    changed._modules = {**module._modules, **children}
    return changed
