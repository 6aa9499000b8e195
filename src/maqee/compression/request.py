"""What a compression was asked to do: two runs with equal requests end with equal plans."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maqee.apq import Budget, SearchOptions
from maqee.compression.compress_options import CompressOptions
from maqee.data import ImageSet
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.io import read_json, to_json, write_json
from maqee.models.digest import weights_digest
from maqee.runs import REQUEST

FORMAT, VERSION = "maqee-compress", 2


@dataclass(frozen=True)
class Request:
    """Everything that decides the plan.

    Attributes:
        model: hash of the weights.
        images: hash of the calibration set: its size, targets, the names of its images and how they are prepared.
        choices: budget and all options.
    """

    model: str
    images: str
    choices: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        model: EarlyExitModel,
        calibration: ImageSet,
        budget: Budget,
        search_options: SearchOptions,
        options: CompressOptions,
    ) -> Request:
        """Describe a compression."""
        digest = hashlib.sha256(calibration.targets.cpu().numpy().tobytes())
        for index in range(len(calibration)):
            digest.update(calibration.images.name(index).encode())
        digest.update(to_json(model.backbone.preprocessing.to_json()).encode())
        choices = {"budget": asdict(budget), "search": search_options.to_json(), "options": plain_options(options)}
        return cls(weights_digest(model), digest.hexdigest(), choices)


def claim(out: Path, request: Request) -> None:
    """Make the folder this request's, or complain that it belongs to another."""
    values = {"format": FORMAT, "version": VERSION, **asdict(request)}
    path = out / REQUEST
    if path.exists():
        if to_json(read_json(path)) != to_json(values):
            raise MaqeeError(f"{out} holds a compression of other inputs or options: give another folder.")
        return
    if out.exists() and any(not path.name.startswith(".") for path in out.iterdir()):  # the lock, what a kill left
        raise MaqeeError(f"{out} holds other files: give a new folder.")
    write_json(path, values)


def plain_options(options: CompressOptions) -> dict[str, Any]:
    """The options as JSON values."""
    augment = options.recovery.augment
    recovery = {**vars(options.recovery), "augment": None if augment is None else augment.model_dump(mode="json")}
    kept = {**asdict(options), "recovery": recovery}
    if options.risk is None:  # requests without a promise are as they were before there were any
        del kept["risk"]
    return kept
