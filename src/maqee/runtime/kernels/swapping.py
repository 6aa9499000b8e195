"""A network whose quantized parts run on kernels, as far as there are kernels for them.

The network itself stays as it is: what is changed is a copy that shares everything else with it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
import triton
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.lgvit import GlobalHead, LgvitHead, LocalHead
from maqee.exits.segformer import SegformerHead
from maqee.exits.segment import Kept, Segment
from maqee.exits.vit_ee import MlpHead
from maqee.models import Backbone
from maqee.models.detection import DetectionReadout
from maqee.models.layers import Attention, Mlp, Readout
from maqee.models.vit import Block, Embedding, ViT
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.runtime.graphs import plain_segments
from maqee.runtime.kernels.attention import MOST_WIDTH
from maqee.runtime.kernels.branches import (
    Added,
    BetweenHalves,
    InFloat,
    KernelAttention,
    KernelLinear,
    KernelMlp,
    KernelPatches,
)
from maqee.runtime.kernels.embedding import KernelEmbedding
from maqee.runtime.kernels.fitness import store_depthwise, store_layer, store_operands
from maqee.runtime.kernels.lgvit_heads import (
    KernelFeaturesHead,
    KernelGlobalHead,
    KernelLocalHead,
    LocalLayers,
    PooledHead,
)
from maqee.runtime.kernels.readouts import POOLED, PooledReadout
from maqee.runtime.kernels.segformer_head import KernelSegformerHead
from maqee.runtime.kernels.stored import StoredWeights

NORM_FIRST = (LgvitHead, MlpHead)  # heads that read tokens, or some of them, through their norm alone
# Heads that read tokens in whatever they travel in.
ANY_TOKENS = (*NORM_FIRST, PooledHead, PooledReadout, KernelSegformerHead)
OLDEST = (8, 0)  # compute capability with int8 products of the size that kernels are cut into


class Line(NamedTuple):
    """How one part of a network is computed: the kernels that do it, or why it is simulated."""

    name: str
    how: str


class KernelSegment(Segment):
    """A segment whose network runs on kernels.

    Attributes:
        lines: how its network is computed, the same for all segments but for the heads.
        ending: norm and classifier behind the last block, where they have kernels.
    """

    lines: tuple[Line, ...] = ()
    ending: nn.Module | None = None

    def predict(self, x: Tensor, kept: Kept) -> Tensor:
        """The head alone, in float32, whatever tokens travel in."""
        if self.head is None and self.ending is not None:
            logits: Tensor = self.ending(x)
            return logits
        if self.head is None:
            readout = self.backbone.head
            assert isinstance(readout, Readout | DetectionReadout)
            return self.backbone.finish(readout.reads(x).float())
        tokens = [*(kept[block] for block in self.head.reads), x]
        return self.head(*(tokens if isinstance(self.head, ANY_TOKENS) else (part.float() for part in tokens)))


def use_kernels(model: EarlyExitModel, half_tokens: bool = False) -> None:
    """Let `model.run` use kernels, in place. They are prepared from the widths in use and the device it is on.

    Args:
        model: the network.
        half_tokens: let tokens travel between kernels in float16; what adds to them does so in float32.
    """
    if half_tokens and not isinstance(model.backbone, ViT):
        raise MaqeeError("half_tokens: tokens in float16 are for plain ViTs, which this model is not: leave it out.")
    swapper = Swapper(half_tokens)
    backbone = swapper.swap(model.backbone, "backbone")
    assert isinstance(backbone, Backbone)
    common = tuple(swapper.lines)
    segments: list[KernelSegment] = []
    for index, old in enumerate(model.segments):
        assert isinstance(old, Segment)
        swapper = Swapper()
        head = swapper.swap(model.head(index), f"heads.{index}") if index < len(model.heads) else None
        if half_tokens and isinstance(head, NORM_FIRST):
            head = _with_children(head, {"norm": InFloat(head.norm)})
        segment = KernelSegment(backbone, old.first, old.last, old.read, head, old.confidence)  # type: ignore[arg-type]
        segment.lines, segment.ending = (*common, *swapper.lines), _ending(backbone) if head is None else None
        segments.append(segment)
    model.segments = list(segments)


def check_device(device: torch.device) -> None:
    """Complain about a device that the kernels do not run on; Triton's interpreter, which is slow, takes the CPU."""
    if device.type == "cpu" and triton.knobs.runtime.interpret:
        return
    if device.type != "cuda":
        raise MaqeeError(f"The engine triton runs on a GPU, not on {device}: give the device cuda, or use reference.")
    if torch.cuda.get_device_capability(device) < OLDEST:
        name = torch.cuda.get_device_name(device)
        raise MaqeeError(f"The engine triton needs a GPU of compute capability 8.0, which {name} is not: use torch.")


def describe(model: EarlyExitModel) -> list[Line]:
    """How every quantized part of a model that uses kernels is computed."""
    found = (segment.lines for segment in plain_segments(model) if isinstance(segment, KernelSegment))
    return list(dict.fromkeys(line for lines in found for line in lines))


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
        if type(module) is Attention:  # not the one with windows, which adds a bias
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
        if isinstance(module, QuantAttend):
            self._note(name, "simulated: this kind of attention has no kernel")
            return module
        children = {child: self.swap(inner, f"{name}.{child}") for child, inner in module.named_children()}
        return _with_children(module, children)

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
            return self._in_stream(_with_children(block, children))
        return nn.Sequential(
            self._attention(block.attn, f"{name}.attn", block.norm1), self._mlp(block.mlp, f"{name}.mlp", block.norm2)
        )

    def _in_stream(self, part: nn.Module) -> nn.Module:
        """A part that adds to the stream in float32, between whatever tokens travel in."""
        return BetweenHalves(part) if self.half_tokens else part

    def _attention(self, attention: Attention, name: str, norm: nn.LayerNorm | None) -> nn.Module:
        """Attention, with the norm in front of it and added to the stream where a norm is given."""
        before = len(self.lines)
        layers = {child: self.swap(attention.get_submodule(child), f"{name}.{child}") for child in ("qkv", "proj")}
        plain = _with_children(attention, layers)
        plain = plain if norm is None else self._in_stream(Added(norm, plain))
        qkv, proj, operands = self._store(attention.qkv), self._store(attention.proj), store_operands(attention.attend)
        if isinstance(operands, str):
            self._note(f"{name}.attend", f"simulated: it {operands}")
        elif isinstance(qkv, str) or isinstance(proj, str) or proj.groups > 1:
            self._note(f"{name}.attend", "simulated: the layers around it do not make or read codes")
        elif attention.proj.in_features // attention.heads > MOST_WIDTH:
            self._note(f"{name}.attend", f"simulated: its heads are wider than {MOST_WIDTH}")
        else:
            del self.lines[before:]
            self._note(name, "codes throughout" + (", norm and sum in the same kernels" if norm is not None else ""))
            adds = norm is not None
            return KernelAttention(qkv, operands, proj, attention.heads, norm, adds, plain, adds and self.half_tokens)
        return plain

    def _local_head(self, head: LocalHead, name: str) -> nn.Module:
        expand, project = self._store(head.expand), self._store(head.project)
        depthwise = None if head.depthwise is None else store_depthwise(head.depthwise)
        readout = self.swap(head.readout, f"{name}.readout")
        fits = isinstance(project, StoredWeights) and project.groups == 1
        if isinstance(expand, str) or isinstance(project, str) or isinstance(depthwise, str) or not fits:
            layers = [child for child in ("expand", "depthwise", "project") if getattr(head, child) is not None]
            children = {child: self.swap(head.get_submodule(child), f"{name}.{child}") for child in layers}
            return _with_children(head, {"readout": readout, **children})
        self._note(name, "codes throughout")
        stored = LocalLayers(expand, depthwise, project)
        if head.shape.prefix_tokens:
            return KernelLocalHead(head, readout, stored)
        assert isinstance(readout, Readout)
        return KernelFeaturesHead(head, readout, stored)

    def _global_head(self, head: GlobalHead, name: str) -> nn.Module:
        children = {child: self.swap(inner, f"{name}.{child}") for child, inner in head.named_children()}
        plain, attention = _with_children(head, children), children["attention"]
        if not isinstance(attention, KernelAttention) or not head.shape.prefix_tokens:
            return plain
        return KernelGlobalHead(head, children["readout"], attention, plain)

    def _segformer_head(self, head: SegformerHead, name: str) -> nn.Module:
        children = {child: self.swap(inner, f"{name}.{child}") for child, inner in head.named_children()}
        swapped, layers = _with_children(head, children), [self._store(layer) for layer in head.projections]
        assert isinstance(swapped, SegformerHead)
        stored = [layer for layer in layers if isinstance(layer, StoredWeights)]
        return KernelSegformerHead(swapped, stored) if len(stored) == len(layers) else swapped

    def _mlp(self, mlp: Mlp, name: str, norm: nn.LayerNorm) -> nn.Module:
        fc1, fc2 = self._store(mlp.fc1), self._store(mlp.fc2)
        if isinstance(fc1, str) or isinstance(fc2, str) or fc2.groups > 1:
            children = {child: self.swap(inner, f"{name}.{child}") for child, inner in mlp.named_children()}
            return self._in_stream(Added(norm, _with_children(mlp, children)))
        self._note(name, "codes throughout, norm and sum in the same kernels")
        return KernelMlp(norm, fc1, fc2, self.half_tokens)


def _ending(backbone: Backbone) -> nn.Module | None:
    """Norm and classifier in one pass over the tokens, where the classifier looks at all of them."""
    readout, norm = backbone.head, backbone.norm
    if not isinstance(readout, Readout) or readout.kind not in POOLED or not isinstance(norm, nn.LayerNorm):
        return None
    return PooledReadout(norm, readout, isinstance(backbone, ViT) and backbone.config.pooled_norm)


def _with_children(module: nn.Module, children: Mapping[str, nn.Module]) -> nn.Module:
    """A copy with other children that shares parameters and buffers; the module itself where no child is another."""
    if all(module._modules[name] is child for name, child in children.items()):
        return module
    changed = copy.copy(module)
    changed._modules = {**module._modules, **children}
    return changed
