"""The two heads of YOLOS: detection tokens to classes and boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maqee.models.layers import init_weights
from maqee.models.positions import Grid, coarse_grid
from maqee.parts import linear_macs

BOX = 4  # centre x, centre y, width, height as shares of the image
_USUAL_SIDE = -1.5  # before the sigmoid: a fifth of the image, about the size of an object


class ReluMlp(nn.Module):
    """Three linear layers with ReLUs between them."""

    def __init__(self, dim: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, outputs)])

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., dim) to (..., outputs)."""
        first, second, last = self.layers
        return last(torch.relu(second(torch.relu(first(x)))))

    def macs(self, rows: int) -> int:
        """All three layers for `rows` rows."""
        sizes = [(getattr(layer, "in_features", 0), getattr(layer, "out_features", 0)) for layer in self.layers]
        return sum(linear_macs(rows, inputs, outputs) for inputs, outputs in sizes)


class DetectionReadout(nn.Module):
    """Detection tokens to one tensor (batch, queries, classes + 1 + 4).

    Its last axis holds the logits of the classes, the logit of "no object", and the box as centre x, centre y, width
    and height, each from 0 to 1. One tensor, because exits, policies and distillation then treat a detection as they
    treat any other output. With `num_classes` 0 it hands on the detection tokens themselves.

    Args:
        dim: width of the tokens.
        num_classes: without "no object".
        queries: detection tokens, the last of the sequence.
        anchored: give each query a learned box of its own, to which the head adds (before the sigmoid). YOLOS has
            none: its queries all begin with nearly the same box and have to be told apart first.
    """

    def __init__(self, dim: int, num_classes: int, queries: int, anchored: bool = False) -> None:
        super().__init__()
        self.queries = queries
        self.classes = ReluMlp(dim, num_classes + 1) if num_classes else None
        self.boxes = ReluMlp(dim, BOX) if num_classes else None
        self.anchors = nn.Parameter(torch.zeros(queries, BOX)) if num_classes and anchored else None

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, tokens, dim), already normalised; the last `queries` of them are read."""
        tokens = self.reads(tokens)
        if self.classes is None or self.boxes is None:
            return tokens
        logits, places = self.classes(tokens), self.boxes(tokens).float()
        if self.anchors is not None:
            places = places + self.anchors
        return torch.cat([logits.float(), places.sigmoid()], dim=-1)  # half precision would round a box to whole pixels

    def reads(self, tokens: Tensor) -> Tensor:
        """Of all tokens those that it looks at."""
        return tokens[:, -self.queries :]

    def macs(self) -> int:
        """Both heads for every query."""
        if self.classes is None or self.boxes is None:
            return 0
        return self.classes.macs(self.queries) + self.boxes.macs(self.queries)


def init_readout(readout: DetectionReadout, grid: Grid) -> None:
    """Fresh heads: boxes begin with the size of a usual object; anchored ones are spread over the image of `grid`."""
    init_weights(readout)
    if readout.boxes is None:
        return
    last = readout.boxes.layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        if readout.anchors is None:
            last.bias[2:] = _USUAL_SIDE
        else:
            last.weight.zero_()  # every query begins exactly at its anchor
            readout.anchors.copy_(_spread_boxes(readout.queries, grid))


def _spread_boxes(count: int, grid: Grid) -> Tensor:
    """(count, 4) before the sigmoid, in the order in which `positions.spread_over` spreads positions."""
    rows, columns = coarse_grid(count, grid)
    down, across = ((torch.arange(n) + 0.5) / n for n in (rows, columns))
    y, x = torch.meshgrid(down.logit(), across.logit(), indexing="ij")
    side = torch.full_like(x, _USUAL_SIDE)
    return torch.stack([x, y, side, side], dim=-1).flatten(0, 1)[:count]
