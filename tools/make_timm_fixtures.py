"""Write small random timm models and their outputs to a folder, for the parity test. Needs timm; run once.

python tools/make_timm_fixtures.py tests/fixtures
"""

import json
import sys
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file
from timm.models.deit import VisionTransformerDistilled
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer

vit = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 1, "num_heads": 2, "mlp_ratio": 2, "num_classes": 5}
models = {
    "deit_distilled": VisionTransformerDistilled(**vit),
    "dinov2": VisionTransformer(**vit, init_values=0.1),
    "swin": SwinTransformer(
        img_size=32, patch_size=2, window_size=4, embed_dim=16, depths=(2, 2), num_heads=(2, 4), num_classes=5
    ),
}
out = Path(sys.argv[1])
torch.manual_seed(0)
for name, model in models.items():
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((0.2 * torch.randn_like(parameter)).half().float())
        images = torch.randn(2, 3, 32, 32)
        logits = model(images)
    state = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    save_file(state, out / f"timm_{name}.safetensors")
    save_file({"images": images, "logits": logits}, out / f"timm_{name}_output.safetensors")

names = ("vit_base_patch16_224", "deit_base_distilled_patch16_224", "vit_small_patch14_dinov2",
         "swin_base_patch4_window7_224")  # fmt: skip
with torch.device("meta"):
    shapes = {
        name: {key: list(value.shape) for key, value in timm.create_model(name).state_dict().items()} for name in names
    }
(out / "timm_shapes.json").write_text(json.dumps({"timm": timm.__version__, "models": shapes}) + "\n")
