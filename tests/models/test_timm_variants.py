"""What timm's options change: registers, positions for patches only, CLIP's norm, the mean token, other image sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from maqee.exits import add_exits
from maqee.models import ViT, load_backbone, save_backbone
from maqee.quant import Bits, QuantSettings, quantize, save_quantized
from maqee.runtime import load_quantized_network as load_quantized
from tests.helpers import check_every_tensor_matters, max_difference
from tests.models.complaints import complaint
from tests.models.foreign import images, watch_ours
from tests.models.test_timm_layout import write_timm_folder
from tests.models.timm_modules import GELU, VisionTransformer

TOLERANCE = 1e-4
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "own GELU class": {"act": GELU()},
    "registers": {"reg_tokens": 4, "no_embed_class": True},
    "registers with positions": {"reg_tokens": 4},
    "DeiT III": {"no_embed_class": True, "init_values": 1.0},
    "CLIP": {"pre_norm": True},
    "CLIP with registers": {"pre_norm": True, "reg_tokens": 2, "no_embed_class": True},
    "mean token": {"global_pool": "avg"},
    "mean token, norm in front": {"global_pool": "avg", "fc_norm": False},
    "mean token, registers": {"global_pool": "avg", "reg_tokens": 4, "no_embed_class": True},
    "class token, norm behind": {"fc_norm": True},
    "not square": {"img_size": (32, 48)},
    "not square, registers": {"img_size": (16, 48), "reg_tokens": 4, "no_embed_class": True},
}
SIZES = [(32, 32), (48, 48), (16, 16), (56, 24), (24, 40)]


def load_vit(source: Any, **options: Any) -> ViT:
    model = load_backbone(source, **options)
    assert isinstance(model, ViT)
    return model.eval()


@torch.no_grad()
def assert_same(ours: ViT, theirs: VisionTransformer, size: tuple[int, int]) -> None:
    expected = theirs(images(*size))
    assert expected.abs().max() > 0.1
    assert max_difference(ours(images(*size)), expected) <= TOLERANCE


@pytest.mark.parametrize("variant", VARIANTS)
def test_live_module(variant: str) -> None:
    theirs = VisionTransformer(**VARIANTS[variant])
    ours = load_vit(theirs)
    assert ours.config.image_size == theirs.patch_embed.img_size
    assert ours.config.prefix_tokens == theirs.num_prefix_tokens
    for size in SIZES:
        assert_same(ours, theirs, size)


@pytest.mark.parametrize("variant", VARIANTS)
def test_folder(variant: str, tmp_path: Path) -> None:
    theirs = VisionTransformer(**VARIANTS[variant])
    options = {"global_pool": "token"} | {key: value for key, value in VARIANTS[variant].items() if key != "act"}
    folder = write_timm_folder(tmp_path / "theirs", theirs.state_dict(), num_heads=4, **options)
    ours = load_vit(folder)
    assert_same(ours, theirs, theirs.patch_embed.img_size)
    assert_same(ours, theirs, (24, 40))
    save_backbone(ours, tmp_path / "ours")
    again = load_vit(tmp_path / "ours")
    assert again.config == ours.config
    assert_same(again, theirs, (24, 40))


BARE = [
    name
    for name in VARIANTS
    if "square" not in name and name not in ("mean token, norm in front", "class token, norm behind")  # settings only
]


@pytest.mark.parametrize("variant", BARE)
def test_bare_file(variant: str, tmp_path: Path) -> None:
    """Shapes tell everything but the number of heads, which are 64 wide by custom."""
    theirs = VisionTransformer(**{**VARIANTS[variant], "embed_dim": 64, "num_heads": 1})
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    ours = load_vit(tmp_path / "weights.safetensors")
    assert ours.config.norm_eps == (1e-5 if "CLIP" in variant else 1e-6)
    assert_same(ours, theirs, (32, 32))


@pytest.mark.parametrize("variant", ["registers", "registers with positions", "DeiT III", "CLIP", "mean token"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_loading_at_another_size(variant: str, size: tuple[int, int]) -> None:
    theirs = VisionTransformer(**VARIANTS[variant])
    ours = load_vit(theirs, image_size=size)
    assert ours.config.image_size == size
    assert_same(ours, theirs, size)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_tensor_takes_part(variant: str) -> None:
    theirs = VisionTransformer(**VARIANTS[variant])

    def everything(module: Any) -> torch.Tensor:
        logits, blocks = watch_ours(load_vit(module), images(*theirs.patch_embed.img_size))
        return torch.cat([tensor.flatten() for tensor in (logits, *blocks)])

    check_every_tensor_matters(theirs, everything, lambda name: False, 1e-3)


def test_resizing_is_told_apart() -> None:
    """Guards the tests above: antialiasing makes a difference above their tolerance, for larger and smaller images."""
    theirs = VisionTransformer()
    ours = load_vit(theirs)
    for size in [(48, 48), (16, 16), (24, 40)]:
        exact = ours(images(*size))
        ours.embedding.position_resize = "plain"
        assert max_difference(ours(images(*size)), exact) > 10 * TOLERANCE
        ours.embedding.position_resize = "antialias"


def test_registers_of_the_file_are_those_of_the_config(tmp_path: Path) -> None:
    theirs = VisionTransformer(reg_tokens=4, no_embed_class=True)
    folder = write_timm_folder(tmp_path, theirs.state_dict(), num_heads=4, reg_tokens=3)
    assert "key 'reg_token' holds 4 register tokens, expected 3" in complaint(folder)
    state = {name: tensor for name, tensor in theirs.state_dict().items() if name != "reg_token"}
    assert "key 'reg_token' is missing" in complaint(write_timm_folder(tmp_path, state, num_heads=4, reg_tokens=4))


@pytest.mark.parametrize("registers", [0, 4])
def test_original_dinov2_release(registers: int, tmp_path: Path) -> None:
    """timm's names but for the registers, positions for class and patches, and a mask token that tells."""
    theirs = VisionTransformer(init_values=1.0, reg_tokens=registers, no_embed_class=True, embed_dim=64, num_heads=1)
    state = dict(theirs.state_dict())
    positions = torch.randn(1, 17, 64)
    if registers:
        state["register_tokens"] = state.pop("reg_token")
    state |= {"pos_embed": positions, "mask_token": torch.zeros(1, 64)}
    torch.save({name: tensor for name, tensor in state.items() if "head" not in name}, tmp_path / "weights.pth")
    ours = load_vit(tmp_path / "weights.pth")
    assert ours.config.position_resize == ("antialias" if registers else "offset")
    assert (ours.config.registers, ours.config.readout) == (registers, "class+mean")
    with torch.no_grad():  # timm's form of the same network
        theirs.cls_token.add_(positions[:, :1])
        theirs.pos_embed.copy_(positions[:, 1:])
        theirs.head = torch.nn.Identity()
    assert max_difference(ours(images(32))[:, :64], theirs(images(32))) <= TOLERANCE
    assert (max_difference(ours(images(48))[:, :64], theirs(images(48))) <= TOLERANCE) == bool(registers)


@pytest.mark.parametrize("method", ["rtn", "repq"])
@pytest.mark.parametrize("exits", [None, "lgvit"])
def test_quantized_and_saved(method: str, exits: str | None, tmp_path: Path) -> None:
    """Everything at once through the rest of the library: CLIP's norm, registers, and the mean token's own norm."""
    theirs = VisionTransformer(pre_norm=True, reg_tokens=2, no_embed_class=True, global_pool="avg", depth=6)
    ours = load_vit(theirs)
    network = ours if exits is None else add_exits(ours, exits)
    settings = QuantSettings(weight_bits=8, act_bits=8, patch=Bits(8, 8), classifier=Bits(8, 8))
    exact = network(images(32))
    quantized = quantize(network.eval(), images(32), method, settings)
    answer = quantized.model(images(32))
    assert 0 < max_difference(answer, exact) < 0.2  # the classifier behind the norm takes part, and all else is kept
    save_quantized(quantized, tmp_path)
    assert torch.equal(load_quantized(tmp_path).model(images(32)), answer)
