"""A backbone with exits: run everything and look, or run under a policy and really stop."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits.heads import ExitHead, build_head
from maqee.exits.open_roads import Decision, OpenRoads, Road, run_roads
from maqee.exits.placement import default_positions, final_kind, head_kinds
from maqee.exits.segment import Confidence, RunSegment, Segment
from maqee.io import read_json, write_json
from maqee.models import Backbone
from maqee.models.backbone import VERSION
from maqee.models.load import EARLY_EXIT_FORMAT, backbone_from_json, check_state
from maqee.parts import Part
from maqee.policy import Policy
from maqee.tasks.classification import max_probability
from maqee.tensors import read_tensors, write_tensors


class AllOutputs(NamedTuple):
    """Everything one pass can tell.

    Attributes:
        outputs: the prediction of every exit in order, then the final one.
        blocks: the tokens after every block; empty unless asked for.
    """

    outputs: list[Tensor]
    blocks: list[Tensor]


class EarlyExitModel(nn.Module):
    """A backbone and a head after some of its blocks.

    Args:
        backbone: the network.
        positions: 1-based blocks after which the heads sit, ascending, before the last block; may be empty.
        kinds: the head kind at each position.
        final: a head kind that replaces the backbone's own norm and classifier after the last block.
        confidence: maps predictions to one number a sample; a task supplies its own.

    Example:
        >>> from maqee.models import load_backbone
        >>> model = EarlyExitModel(load_backbone("test-vit"), (1, 2), ("mlp", "vit"))
        >>> decision = model.run(torch.zeros(4, 3, 32, 32), Policy((0.9, 0.9)))
        >>> decision.output.shape
        torch.Size([4, 10])
    """

    def __init__(
        self,
        backbone: Backbone,
        positions: Sequence[int],
        kinds: Sequence[str],
        final: str | None = None,
        confidence: Confidence = max_probability,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.positions = _check_positions(positions, kinds, backbone.depth)
        self.kinds = tuple(kinds)
        self.final_kind = final
        self.confidence = confidence
        classes = backbone.config.num_classes
        self.heads = nn.ModuleList(
            build_head(kind, backbone.token_shape(position), classes)
            for position, kind in zip(self.positions, self.kinds, strict=True)
        )
        if final is not None:
            self.heads.append(build_head(final, backbone.token_shape(backbone.depth), classes))
        read, bounds = self._read_by(range(len(self.heads))), (0, *self.exit_blocks)
        self.segments: list[RunSegment] = [  # from every exit to the next; engines put others into their places
            Segment(backbone, first + 1, last, read, self.head(index) if index < len(self.heads) else None, confidence)
            for index, (first, last) in enumerate(itertools.pairwise(bounds))
        ]
        self._open_roads = OpenRoads()

    @property
    def num_exits(self) -> int:
        """Early exits; the final output is not counted."""
        return len(self.positions)

    @property
    def exit_blocks(self) -> tuple[int, ...]:
        """Depth at which each exit, and at last the full model, ends."""
        return (*self.positions, self.backbone.depth)

    @property
    def idle(self) -> tuple[str, ...]:
        """Modules that no output needs: the backbone's own ending where a head has taken its place."""
        return ("backbone.norm", "backbone.head") if self.final_kind else ()

    def head(self, index: int) -> ExitHead:
        """The head of an exit."""
        head = self.heads[index]
        assert isinstance(head, ExitHead)
        return head

    def forward(self, images: Tensor, policy: Policy | None = None) -> Tensor:
        """Predictions: at full depth, or under a policy."""
        if policy is not None:
            return self.run(images, policy).output
        return self.forward_all(images, only_final=True).outputs[-1]

    def forward_all(self, images: Tensor, blocks: bool = False, only_final: bool = False) -> AllOutputs:
        """Run every block and every head.

        Args:
            images: (batch, channels, height, width), normalised.
            blocks: return the tokens after every block too.
            only_final: leave the heads of early exits out.
        """
        heads = {block: index for index, block in enumerate(self.exit_blocks)}
        outputs: list[Tensor] = []
        seen: list[Tensor] = []
        for number, x in self.backbone.walk(self.backbone.embedding(images)):
            seen.append(x)
            if number == self.backbone.depth or (number in heads and not only_final):
                outputs.append(self.predict(heads[number], seen))
        return AllOutputs(outputs, seen if blocks else [])

    def predict(self, index: int, seen: Sequence[Tensor]) -> Tensor:
        """The output of an exit, from the tokens after every block up to its own."""
        if index == len(self.heads):
            return self.backbone.finish(seen[-1])
        head = self.head(index)
        return head(*(seen[block - 1] for block in head.reads), seen[-1])

    def run(self, images: Tensor, policy: Policy) -> Decision:
        """Stop each sample at the first exit that is sure enough.

        Samples that leave are taken out of the batch, so the blocks behind an exit only see the rest, and a block that
        nobody reaches is not run, nor is the head of a closed exit. One synchronisation with the device an open exit:
        the number of samples that stay.
        """
        return run_roads(self.roads(policy), images, policy)

    def roads(self, policy: Policy) -> list[Road]:
        """What is run under a policy: the roads from each open exit to the next, and to full depth.

        A closed exit is not there: the road in front of it goes on to the next open one, without its head.
        """
        policy.check(self.num_exits)
        ends = (*policy.open, self.num_exits)
        if len(ends) == len(self.segments):
            return [Road(*pair) for pair in enumerate(self.segments)]
        return self._open_roads.between(self.segments, ends, self.exit_blocks, self._read_by(ends))

    def use_confidence(self, confidence: Confidence) -> None:
        """Decide by another confidence from now on."""
        self.confidence = confidence
        for segment in (*self.segments, *self._open_roads):
            segment.use_confidence(confidence)

    def _read_by(self, exits: Sequence[int]) -> frozenset[int]:
        """Blocks whose tokens the heads of some exits read, besides those of their own block."""
        own = (index for index in exits if index < len(self.heads))
        return frozenset(block for index in own for block in self.head(index).reads)

    def compilable(self) -> list[nn.Module]:
        """The pieces that are worth compiling one by one: `compile_each(model.compilable())`."""
        return [*self.backbone.blocks, *self.heads]

    def parts(self) -> list[Part]:
        """The backbone's parts and the heads'."""
        *body, classifier = self.backbone.parts()
        for index, head in enumerate(self.heads):
            block, kind = self.exit_blocks[index], (*self.kinds, self.final_kind)[index]
            assert isinstance(head, ExitHead)
            body.append(Part(f"exit {block} head ({kind})", "head", head.macs(), block, str(index)))
        return body if self.final_kind else [*body, classifier]

    def to_json(self) -> dict[str, Any]:
        """What, with the state dict, makes the model again."""
        exits = [{"block": block, "head": kind} for block, kind in zip(self.positions, self.kinds, strict=True)]
        values = {"exits": exits, "final": self.final_kind}
        return {**self.backbone.to_json(), **values, "format": EARLY_EXIT_FORMAT, "version": VERSION}

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors; `load` reads them back."""
        folder = Path(folder)
        write_tensors(folder / "model.safetensors", self.state_dict())
        write_json(folder / "config.json", self.to_json())

    @classmethod
    def load(cls, folder: str | Path, confidence: Confidence = max_probability) -> EarlyExitModel:
        """Read what `save` wrote."""
        folder = Path(folder)
        path = folder / "config.json"
        values = read_json(path)
        if values.get("format") != EARLY_EXIT_FORMAT:
            raise MaqeeError(
                f"{path}: format is {values.get('format')!r}, not {EARLY_EXIT_FORMAT!r}: no early-exit model."
            )
        backbone = backbone_from_json(values, str(path))
        exits = values.get("exits")
        if not isinstance(exits, list) or any(set(entry) != {"block", "head"} for entry in exits):
            raise MaqeeError(f"{path}: key 'exits' must list a block and a head for every exit.")
        blocks, kinds = [entry["block"] for entry in exits], [entry["head"] for entry in exits]
        model = cls(backbone, blocks, kinds, values.get("final"), confidence)
        weights = folder / "model.safetensors"
        state = read_tensors(weights)
        check_state(model, state, str(weights))
        model.load_state_dict(state)
        return model


def add_exits(
    backbone: Backbone,
    scheme: str = "lgvit",
    positions: Sequence[int] | None = None,
    final: str | None = None,
    confidence: Confidence = max_probability,
) -> EarlyExitModel:
    """Give a backbone exits; their heads copy what they can from it.

    Args:
        backbone: the network.
        scheme: "lgvit", "lgvit-raw", "vit-ee", or the name of one head kind for all exits.
        positions: 1-based blocks; the usual ones for this backbone when left out.
        final: a head kind to end with instead of the backbone's own classifier; left out, what goes with the scheme.
        confidence: maps predictions to one number a sample.
    """
    chosen = tuple(positions) if positions is not None else default_positions(backbone)
    if not chosen:
        raise MaqeeError(f"No exits were asked for: give positions within 1..{backbone.depth - 1}.")
    kinds = head_kinds(scheme, backbone, len(chosen))
    model = EarlyExitModel(backbone, chosen, kinds, final or final_kind(scheme), confidence)
    for index in range(len(model.heads)):
        model.head(index).start_from(backbone, model.exit_blocks[index])
    return model


def _check_positions(positions: Sequence[int], kinds: Sequence[str], depth: int) -> tuple[int, ...]:
    if len(positions) != len(kinds):
        raise MaqeeError(f"There are {len(positions)} exit positions and {len(kinds)} head kinds: give one kind each.")
    if not positions:
        return ()
    ascending = all(a < b for a, b in itertools.pairwise(positions))
    if not ascending or positions[0] < 1 or positions[-1] >= depth:
        raise MaqeeError(f"Exit positions {list(positions)} must ascend within 1..{depth - 1}.")
    return tuple(positions)
