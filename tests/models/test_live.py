"""Live modules that are other networks with the same tensors: refused, with the part and the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from maqee.errors import MaqeeError
from maqee.models import Swin, load_backbone, presets
from maqee.models.swin import SwinBlock
from tests.models.complaints import complaint
from tests.models.foreign import CLASSIFIERS, assert_parity, images, make
from tests.models.timm_modules import QuickGELU, ResPostBlock, RmsNorm, VisionTransformer

Change = Callable[[Any], None]
ACTIVATIONS = {
    "ReLU()": nn.ReLU(),
    "GELU(approximate='tanh')": nn.GELU(approximate="tanh"),
    "SiLU()": nn.SiLU(),
    "QuickGELU()": QuickGELU(),
}


def set_last(path: str, name: str, value: object) -> Change:
    """Set an attribute of one of the last submodules, where a look at the first does not find it."""

    def change(module: Any) -> None:
        setattr(module.get_submodule(path), name, value)

    return change


def overlap(module: Any) -> None:
    module.patch_embed.proj = nn.Conv2d(3, 32, 8, stride=4)


def pad(module: Any) -> None:
    module.patch_embed.proj = nn.Conv2d(3, 32, 8, stride=8, padding=1)


def post_norm(module: Any) -> None:
    block = ResPostBlock(32, 4, nn.GELU(), scaled=False)
    block.load_state_dict(module.blocks[1].state_dict())
    module.blocks[1] = block


class CosineLinear(nn.Module):
    """A classifier that normalises, with the tensors of a plain one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(5, 32)), nn.Parameter(torch.zeros(5))


REFUSED: dict[str, tuple[Change, str]] = {
    "epsilon of the final norm": (set_last("norm", "eps", 1e-5), "norm has eps 1e-05, other norms 1e-06"),
    "epsilon in a block": (set_last("blocks.1.norm2", "eps", 1e-5), "blocks.1.norm2 has eps 1e-05"),
    "another norm": (set_last("blocks.1", "norm1", RmsNorm(32)), "blocks.1.norm1 is a RmsNorm, only LayerNorm"),
    "scale": (set_last("blocks.1.attn", "scale", 0.125), "blocks.1.attn scales its products by 0.125"),
    "heads": (set_last("blocks.1.attn", "num_heads", 2), "blocks.1.attn has 2 heads, other blocks 4"),
    "overlapping patches": (overlap, "patch_embed.proj cuts out overlapping or padded patches"),
    "padded patches": (pad, "patch_embed.proj cuts out overlapping or padded patches"),
    "post-norm": (post_norm, "blocks.1 puts its norms behind attention and MLP"),
    "rotary positions": (set_last("", "rope", nn.Identity()), "rotary positions"),
    "classifier": (set_last("", "head", CosineLinear()), "head is a CosineLinear, only Linear"),
    "attention pooling": (set_last("", "global_pool", "map"), "global_pool is 'map'"),
    "maximum pooling": (set_last("", "global_pool", "max"), "global_pool is 'max'"),
    "special tokens pooled": (set_last("", "pool_include_prefix", True), "pool_include_prefix is True"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_network_with_the_same_tensors(case: str) -> None:
    change, words = REFUSED[case]
    module = VisionTransformer()
    load_backbone(module)  # it is good before
    change(module)
    message = complaint(module)
    assert message.startswith(("VisionTransformer: ", "the configuration of VisionTransformer: "))
    assert words in message
    assert "supported" in message


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("place", [0, 1])
def test_another_activation(name: str, place: int) -> None:
    module: Any = VisionTransformer()
    module.blocks[place].mlp.act = ACTIVATIONS[name]
    assert f"VisionTransformer: blocks.{place}.mlp.act is the activation {name}, only GELU" in complaint(module)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("activation", ["relu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu"])
def test_activation_of_transformers_is_named(kind: str, activation: str) -> None:
    assert f"hidden_act is {activation!r}, only 'gelu' is supported" in complaint(make(kind, hidden_act=activation))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_changed_module_of_transformers(kind: str) -> None:
    """The configuration still says what the model was."""
    theirs = make(kind)
    mlp = next(child for name, child in theirs.named_modules() if name.endswith("1.mlp"))
    mlp.activation_fn = nn.ReLU()
    assert "mlp.activation_fn is the activation ReLU()" in complaint(theirs)


@pytest.mark.parametrize("kind", ["dinov2", "dinov2-registers"])
def test_swiglu_of_transformers(kind: str, tmp_path: Path) -> None:
    theirs = make(kind, use_swiglu_ffn=True)
    assert "use_swiglu_ffn is True" in complaint(theirs)
    theirs.save_pretrained(tmp_path)
    assert "use_swiglu_ffn is True" in complaint(tmp_path)
    (tmp_path / "config.json").unlink()
    assert "of a SwiGLU MLP, which is not supported" in complaint(tmp_path / "model.safetensors")


def test_epsilon_of_some_norms_only() -> None:
    assert "layer_norm_eps is 0.1" in complaint(make("swin", layer_norm_eps=0.1))


def test_what_does_not_matter_is_accepted() -> None:
    """Dropout, stochastic depth, training mode and the kernel of attention are none of the network's answers."""
    theirs = make("vit", hidden_dropout_prob=0.3, attn_implementation="eager").train()
    ours = load_backbone(theirs)
    assert theirs.training
    assert_parity(ours.eval(), theirs.eval(), images(32))


class Compiled(nn.Module):
    """What torch.compile makes of a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module


@pytest.mark.parametrize("wrap", [nn.DataParallel, Compiled])
def test_wrapped_modules_are_looked_into(wrap: Callable[[nn.Module], nn.Module]) -> None:
    theirs: Any = VisionTransformer(global_pool="avg")
    config = load_backbone(wrap(theirs)).config
    assert config == load_backbone(theirs).config
    theirs.blocks[1].mlp.act = nn.ReLU()
    assert "blocks.1.mlp.act is the activation ReLU()" in complaint(wrap(theirs))


def test_activation_that_cannot_be_seen() -> None:
    """A module may keep its activation in its code; nobody knows which it is."""
    theirs: Any = VisionTransformer()
    del theirs.blocks[1].mlp.act
    assert "blocks.1.mlp has no module for its activation to look at" in complaint(theirs)


def test_tensors_of_unsupported_variants_are_named() -> None:
    cases = {
        "blocks.0.attn.q_norm.weight": "qk_norm",
        "blocks.1.attn.k_norm.bias": "qk_norm",
        "blocks.0.mlp.fc1_g.weight": "SwiGLU",
        "blocks.0.mlp.w12.weight": "SwiGLU",
        "patch_embed.norm.weight": "a norm behind the patch projection",
        "attn_pool.latent": "attention pooling",
        "rope.freqs": "rotary positions",
    }
    for key, words in cases.items():
        module = VisionTransformer()
        place, _, name = key.rpartition(".")
        parent: nn.Module = module
        for part in place.split("."):
            if not isinstance(getattr(parent, part, None), nn.Module):
                parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        parent.register_buffer(name, torch.zeros(3))
        message = complaint(module)
        assert f"unexpected key {key!r} of " in message
        assert words in message


def test_packed_swiglu() -> None:
    """timm's and the original DINOv2's giant: fc1 holds two layers."""
    module: Any = VisionTransformer()
    for block in module.blocks:
        block.mlp.fc2 = nn.Linear(32, 32)
    assert "key 'blocks.0.mlp.fc2.weight' takes half of what fc1 gives: a SwiGLU MLP" in complaint(module)


def test_errors_are_of_one_kind() -> None:
    with pytest.raises(MaqeeError, match="known architecture"):
        load_backbone(nn.Linear(3, 3))


def timm_swin() -> Any:
    """A Swin with timm's module names around layers of plain torch."""
    ours = load_backbone("test-swin")
    assert isinstance(ours, Swin)
    module, embedding = _holder(), ours.embedding
    module.patch_embed = _holder(proj=embedding.get_submodule("patch"), norm=embedding.get_submodule("norm"))
    stages = [_holder(blocks=nn.ModuleList()) for _ in ours.config.depths]
    for index, block in enumerate(ours.blocks):
        assert isinstance(block, SwinBlock)
        attention = _holder(qkv=block.attn.qkv, proj=block.attn.proj)
        attention.relative_position_bias_table = block.attn.bias_table
        stage = ours.config.stage_of(index)
        attention.num_heads = ours.config.heads[stage]
        layers = _holder(norm1=block.norm1, attn=attention, norm2=block.norm2, mlp=block.mlp)
        stages[stage].blocks.append(layers)
        if (merge := dict(ours.merges.items()).get(str(index + 1))) is not None:
            stages[stage].downsample = merge
    module.layers, module.norm, module.head = nn.ModuleList(stages), ours.norm, _holder(fc=ours.head.linear)
    module.patch_embed.img_size = (32, 32)
    return module


def _holder(**children: nn.Module) -> Any:
    module = nn.Module()
    for name, child in children.items():
        module.add_module(name, child)
    return module


def test_live_swin_of_timm() -> None:
    """Heads differ between stages, which is as it should be."""
    assert load_backbone(timm_swin()).config == presets["test-swin"]
    module = timm_swin()
    module.get_submodule("layers.2.blocks.1.attn").num_heads = 2
    assert "layers.2.blocks.1.attn has 2 heads" in complaint(module)
    module = timm_swin()
    module.get_submodule("layers.1.blocks.0.mlp").act = nn.ReLU()
    assert "layers.1.blocks.0.mlp.act is the activation ReLU()" in complaint(module)
    module = timm_swin()
    module.get_submodule("layers.1.downsample.norm").eps = 1e-3
    assert "layers.1.downsample.norm has eps 0.001" in complaint(module)
