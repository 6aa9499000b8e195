"""ViT, DeiT, DINOv2 and YOLOS: one plain vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models.backbone import Backbone, TokenShape
from maqee.models.config import ViTConfig
from maqee.models.detection import DetectionReadout, init_readout
from maqee.models.layers import Attention, DropPath, Mlp, Readout, init_weights
from maqee.models.patches import PatchConv
from maqee.models.positions import resize_positions
from maqee.models.preprocessing import Preprocessing
from maqee.parts import Part, block_parts, linear_macs


class Embedding(nn.Module):
    """Image to tokens: patches projected, special tokens in front, detection tokens behind, positions added.

    The order is class token, distillation token, registers, patches, detection tokens; registers have no position.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.grid = config.grid
        self.placed_tokens = config.placed_tokens
        self.position_resize = config.position_resize
        self.patch = PatchConv(config.channels, config.dim, config.patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.distillation_token: nn.Parameter | None = None
        if config.distillation_token:
            self.distillation_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.detection_tokens: nn.Parameter | None = None
        if config.detection_tokens:
            self.detection_tokens = nn.Parameter(torch.zeros(1, config.detection_tokens, config.dim))
        self.register_tokens: nn.Parameter | None = None
        if config.registers:
            self.register_tokens = nn.Parameter(torch.zeros(1, config.registers, config.dim))
        self.position = nn.Parameter(torch.zeros(1, config.tokens - config.registers, config.dim))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps) if config.pre_norm else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, tokens, dim); any size that is a multiple of the patch."""
        grid = self.grid_of(images)
        patches = self.patch(images).flatten(2).transpose(1, 2)
        normed: Tensor = self.norm(self.among_others(patches, grid))
        return normed

    def grid_of(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of patches that images divide into."""
        side = self.patch.stride[0]
        if any(length % side for length in images.shape[2:]):
            got = "x".join(map(str, images.shape[2:]))
            raise MaqeeError(f"Images of {got} do not divide into patches of {side}: resize them.")
        return int(images.shape[2]) // side, int(images.shape[3]) // side

    def among_others(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        """Patches (batch, rows * columns, dim) with all other tokens around them, positions added."""
        prefix = self._for_each_image(patches, self.class_token, self.distillation_token)
        detection = self._for_each_image(patches, self.detection_tokens)
        position = resize_positions(self.position, self.placed_tokens, self.grid, grid, self.position_resize)
        tokens: Tensor = torch.cat([*prefix, patches, *detection], dim=1) + position
        if self.register_tokens is not None:
            placed, rest = tokens.tensor_split((self.placed_tokens,), dim=1)
            tokens = torch.cat([placed, *self._for_each_image(patches, self.register_tokens), rest], dim=1)
        return tokens

    def _for_each_image(self, patches: Tensor, *tokens: Tensor | None) -> list[Tensor]:
        """The tokens that this model has, (batch, n, dim) each."""
        return [token.expand(patches.shape[0], -1, -1) for token in tokens if token is not None]


class LayerScale(nn.Module):
    """A learned factor per channel on a residual branch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., dim)."""
        return x * self.gamma


class Block(nn.Module):
    """A pre-norm encoder layer: attention, then MLP, each added to the stream."""

    def __init__(
        self,
        dim: int,
        heads: int,
        mlp_dim: int,
        *,
        layer_scale: bool = False,
        qkv_bias: bool = True,
        norm_eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = Attention(dim, heads, qkv_bias)
        self.scale1 = LayerScale(dim) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = Mlp(dim, mlp_dim)
        self.scale2 = LayerScale(dim) if layer_scale else nn.Identity()
        self.drop_path = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        x = x + self.drop_path(self.scale1(self.attn(self.norm1(x))))
        return x + self.drop_path(self.scale2(self.mlp(self.norm2(x))))

    def macs(self, tokens: int) -> dict[str, int]:
        """Of each layer, for one image."""
        return self.attn.macs(tokens) | self.mlp.macs(tokens)


class ViT(Backbone):
    """A plain vision transformer."""

    config: ViTConfig
    head: Readout | DetectionReadout

    def __init__(self, config: ViTConfig, preprocessing: Preprocessing | None = None) -> None:
        super().__init__()
        self.config = config
        self.preprocessing = preprocessing or Preprocessing(image_size=config.image_size)
        self.embedding: Embedding = Embedding(config)
        self.blocks = nn.ModuleList(
            Block(
                config.dim,
                config.heads,
                config.mlp_dim,
                layer_scale=config.layer_scale,
                qkv_bias=config.qkv_bias,
                norm_eps=config.norm_eps,
            )
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.head = _make_head(config)
        self.mid_position: nn.Parameter | None = None
        if config.mid_position:
            self.mid_position = nn.Parameter(torch.zeros(config.depth - 1, 1, config.tokens, config.dim))
        init_weights(self)
        if isinstance(self.head, DetectionReadout):
            init_readout(self.head, config.grid)
        embedding = self.embedding
        learned = (embedding.class_token, embedding.distillation_token, embedding.detection_tokens)
        for parameter in (*learned, embedding.register_tokens, embedding.position, self.mid_position):
            if parameter is not None:
                nn.init.trunc_normal_(parameter, std=0.02)

    def before(self, number: int, x: Tensor) -> Tensor:
        """Positions between blocks (YOLOS), added here so that an exit reads what the block before really put out."""
        if self.mid_position is None or number == 1:
            return x
        if x.shape[1] != self.mid_position.shape[2]:
            size = "x".join(map(str, self.config.image_size))
            raise MaqeeError(
                f"Positions between blocks are for images of {size}: resize the images, or load with image_size."
            )
        return x + self.mid_position[number - 2]  # (1, tokens, dim)

    def finish(self, x: Tensor) -> Tensor:
        """Final norm, of the tokens that are read, and classifier; with `pooled_norm` the norm comes after the mean."""
        if not self.config.pooled_norm:
            return super().finish(self.head.reads(x))
        assert isinstance(self.head, Readout)
        logits: Tensor = self.head.linear(self.norm(self.head.pool(x)))
        return logits

    def token_shape(self, number: int) -> TokenShape:
        """The same after every block."""
        config = self.config
        return TokenShape(
            block=number,
            dim=config.dim,
            grid=config.grid,
            prefix_tokens=config.prefix_tokens,
            heads=config.heads,
            mlp_dim=config.mlp_dim,
            readout=config.readout,
            detection_tokens=config.detection_tokens,
        )

    def parts(self) -> list[Part]:
        """Patch embedding, the layers and the attention products of every block, classifier."""
        config = self.config
        shape = self.token_shape(1)
        patch = linear_macs(shape.patches, config.channels * config.patch_size**2, config.dim)
        parts = [Part("patch embedding", "patch", patch, 0)]
        for number, block in enumerate(self.blocks, start=1):
            assert isinstance(block, Block)
            parts += block_parts(number, block.macs(shape.tokens))
        parts.append(Part("classifier", "classifier", self.head.macs(), 0))
        return parts


def _make_head(config: ViTConfig) -> Readout | DetectionReadout:
    """Detection tokens, where there are any, are what is read out."""
    if config.detection_tokens:
        return DetectionReadout(config.dim, config.num_classes, config.detection_tokens, config.readout == "anchored")
    return Readout(config.dim, config.num_classes, config.readout, config.prefix_tokens)


def fold_layer_scale(model: ViT) -> ViT:
    """Multiply each LayerScale into the linear layer before it: the same function, a plainer network.

    Quantization and exit heads copied from blocks both want the plain form. Changes the model in place.
    """
    from dataclasses import replace

    with torch.no_grad():
        for block in model.blocks:
            assert isinstance(block, Block)
            for name, linear in (("scale1", block.attn.proj), ("scale2", block.mlp.fc2)):
                scale = getattr(block, name)
                if isinstance(scale, LayerScale):
                    linear.weight.mul_(scale.gamma[:, None])
                    linear.bias.mul_(scale.gamma)
                    setattr(block, name, nn.Identity())
    model.config = replace(model.config, layer_scale=False)
    return model
