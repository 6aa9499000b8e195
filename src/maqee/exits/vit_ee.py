"""The seven heads of ViT-EE (Bakhtiarnia, Zhang and Iosifidis, BMVC 2021).

Where the original leaves widths open, a head follows the public PyTorch port of that paper. On backbones without a
class token (Swin) the mean token stands in for it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maqee.exits.heads import ExitHead, class_and_patches, heads
from maqee.models import Backbone, TokenShape
from maqee.models.layers import Mlp, Readout, as_picture, init_weights
from maqee.models.swin import SwinBlock
from maqee.models.vit import Block
from maqee.parts import linear_macs

CNN_CHANNELS = 16


def _readout(shape: TokenShape, num_classes: int) -> Readout:
    """The backbone's own way of reading tokens."""
    return Readout(shape.dim, num_classes, shape.readout, shape.prefix_tokens)


@heads.register("mlp")
class MlpHead(ExitHead):
    """A norm and a linear classifier, as at the end of the backbone: the cheapest head."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.dim, eps=1e-6)
        self.readout = _readout(shape, num_classes)
        init_weights(self)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        return self.readout(self.norm(self.readout.reads(tokens[-1])))

    def macs(self) -> int:
        """The classifier."""
        return self.readout.macs()

    def start_from(self, backbone: Backbone, position: int) -> None:
        """Final norm and classifier, where the widths agree."""
        copy_matching(self.norm, backbone.norm)
        copy_matching(self.readout, backbone.head)


class CnnHead(ExitHead):
    """3x3 convolution to 16 channels, ELU, 2x2 max pooling, linear. Subclasses say how the class token gets in."""

    def __init__(self, shape: TokenShape, num_classes: int, channels: int) -> None:
        super().__init__()
        self.shape = shape
        rows, columns = shape.grid
        self.conv = nn.Conv2d(channels, CNN_CHANNELS, 3, padding=1)
        self.act = nn.ELU()
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.linear = nn.Linear(CNN_CHANNELS * -(-rows // 2) * -(-columns // 2), num_classes)
        init_weights(self)

    def merge(self, summary: Tensor, patches: Tensor) -> Tensor:
        """Class token (batch, dim) and patches (batch, n, dim) to the tokens of the picture."""
        raise NotImplementedError

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        summary, patches = class_and_patches(tokens[-1], self.shape.prefix_tokens)
        picture = as_picture(self.merge(summary, patches), self.shape.grid)  # (batch, channels, rows, columns)
        return self.linear(self.pool(self.act(self.conv(picture))).flatten(1))

    def macs(self) -> int:
        """Convolution and classifier."""
        conv = linear_macs(self.shape.patches, 9 * self.conv.in_channels, CNN_CHANNELS)
        return conv + linear_macs(1, self.linear.in_features, self.linear.out_features)


@heads.register("cnn-ignore")
class CnnIgnoreHead(CnnHead):
    """The class token is dropped."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__(shape, num_classes, shape.dim)

    def merge(self, summary: Tensor, patches: Tensor) -> Tensor:
        """Patches only."""
        return patches


@heads.register("cnn-add")
class CnnAddHead(CnnHead):
    """The class token is added to every patch."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__(shape, num_classes, shape.dim)

    def merge(self, summary: Tensor, patches: Tensor) -> Tensor:
        """Broadcast sum."""
        return patches + summary[:, None]


@heads.register("cnn-project")
class CnnProjectHead(CnnHead):
    """The class token is set beside every patch; the convolution projects the pair."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__(shape, num_classes, 2 * shape.dim)

    def merge(self, summary: Tensor, patches: Tensor) -> Tensor:
        """(batch, n, 2 dim)."""
        return torch.cat([patches, summary[:, None].expand_as(patches)], dim=-1)


@heads.register("vit")
class EncoderHead(ExitHead):
    """One more encoder layer of the backbone's own shape, then norm and classifier: the head called ViT-EE.

    On Swin the layer is a window block of the same stage, so that it costs what a block costs and can start from one.
    """

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__()
        self.shape = shape
        self.block: Block | SwinBlock
        if shape.window:
            self.block = SwinBlock(shape.dim, shape.heads, shape.mlp_dim, shape.grid, shape.window)
        else:
            self.block = Block(shape.dim, shape.heads, shape.mlp_dim)
        self.norm = nn.LayerNorm(shape.dim, eps=1e-6)
        self.readout = _readout(shape, num_classes)
        init_weights(self)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        return self.readout(self.norm(self.readout.reads(self.block(tokens[-1]))))

    def macs(self) -> int:
        """One block and the classifier."""
        block = self.block.macs() if isinstance(self.block, SwinBlock) else self.block.macs(self.shape.tokens)
        return sum(block.values()) + self.readout.macs()

    def start_from(self, backbone: Backbone, position: int) -> None:
        """The next block (or, at the end of a Swin stage, this one), the final norm and the classifier."""
        following = backbone.blocks[position] if position < backbone.depth else None
        if following is None or not copy_matching(self.block, following):
            copy_matching(self.block, backbone.blocks[position - 1])
        copy_matching(self.norm, backbone.norm)
        copy_matching(self.readout, backbone.head)


@heads.register("mixer")
class MixerHead(ExitHead):
    """An MLP-Mixer layer over all tokens, then the classifier."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__()
        self.shape = shape
        hidden = 4 * shape.dim
        self.norm1 = nn.LayerNorm(shape.dim, eps=1e-6)
        self.token_mlp = Mlp(shape.tokens, hidden)
        self.norm2 = nn.LayerNorm(shape.dim, eps=1e-6)
        self.channel_mlp = Mlp(shape.dim, hidden)
        self.readout = _readout(shape, num_classes)
        init_weights(self)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        x = tokens[-1]
        x = x + self.token_mlp(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return self.readout(x + self.channel_mlp(self.norm2(x)))

    def macs(self) -> int:
        """Both MLPs and the classifier."""
        mlps = self.token_mlp.macs(self.shape.dim), self.channel_mlp.macs(self.shape.tokens)
        return sum(sum(mlp.values()) for mlp in mlps) + self.readout.macs()


class Affine(nn.Module):
    """ResMLP's stand-in for a norm: a factor and an offset per channel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., dim)."""
        return x * self.weight + self.bias


@heads.register("resmlp")
class ResMlpHead(ExitHead):
    """A ResMLP layer over the patches, mean pooling, linear."""

    def __init__(self, shape: TokenShape, num_classes: int) -> None:
        super().__init__()
        self.shape = shape
        self.affine1 = Affine(shape.dim)
        self.across = nn.Linear(shape.patches, shape.patches)
        self.affine2 = Affine(shape.dim)
        self.mlp = Mlp(shape.dim, 4 * shape.dim)
        self.linear = nn.Linear(shape.dim, num_classes)
        init_weights(self)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, dim) to logits (batch, classes)."""
        patches = tokens[-1][:, self.shape.prefix_tokens :]
        patches = patches + self.across(self.affine1(patches).transpose(1, 2)).transpose(1, 2)
        patches = patches + self.mlp(self.affine2(patches))
        return self.linear(patches.mean(dim=1))

    def macs(self) -> int:
        """Cross-patch layer, MLP and classifier."""
        patches = self.shape.patches
        across = linear_macs(self.shape.dim, patches, patches)
        return across + sum(self.mlp.macs(patches).values()) + linear_macs(1, self.shape.dim, self.linear.out_features)


def copy_matching(target: nn.Module, source: nn.Module) -> bool:
    """Copy all weights if every name and shape of `target` is in `source`; say whether it was done."""
    wanted, given = target.state_dict(), source.state_dict()
    if any(name not in given or given[name].shape != tensor.shape for name, tensor in wanted.items()):
        return False
    target.load_state_dict({name: given[name] for name in wanted})
    return True
