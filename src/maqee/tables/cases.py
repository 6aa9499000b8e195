"""One model to be made: what decides it, and the folder that is named after that."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from maqee.compression.compress_config import CompressConfig
from maqee.compression.request import plain_options
from maqee.io import to_json
from maqee.runs import CONFIG, WEIGHTS, resolve_model
from maqee.tables.table_file import BEST, Row, TableFile

Kind = Literal["float", "uniform", "best", "search"]


@dataclass(frozen=True)
class Case:
    """A model of the table at one seed. Rows that differ in thresholds alone share it.

    Attributes:
        kind: the model as it came, uniform bits, the best uniform pair, or searched bits.
        exits: the name of its exits.
        model: the folder or name of the full-precision model.
        weights: hash of that model's files; empty where there are none here.
        bare: whether the exits are taken off.
        data: name of the data set, if the model does not say.
        config: budget, search and options, with the seed.
    """

    kind: Kind
    exits: str
    model: str
    weights: str
    bare: bool
    data: str | None
    config: CompressConfig

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the model, as plain values, and nothing that does not."""
        options = plain_options(self.config.options)
        if self.kind == "float":
            options = {key: options[key] for key in ("task", "fit_images", "samples", "seed")}
        elif not options["recovery_steps"]:
            del options["recovery"]
        values = {"kind": self.kind, "weights": self.weights, "bare": self.bare, "data": self.data, "options": options}
        if not self.weights:
            values["model"] = self.model
        if self.kind in ("best", "search"):
            values |= {"budget": asdict(self.config.budget), "search": self.config.search.to_json()}
        return values

    @property
    def name(self) -> str:
        """The folder: the settings that people look for, and a hash of all of them."""
        options, steps = self.config.options, self.config.options.recovery_steps
        pair = f"W{options.quantization.weight_bits}A{options.quantization.act_bits}"
        words = {
            "float": ["float"],
            "uniform": [options.method, pair],
            "best": [options.method, "best-pair"],
            "search": ["maqee", options.method, self.config.search.bits],
        }[self.kind]
        exits = "no-exits" if self.bare else self.exits
        recovered = [f"recovered{steps}"] if steps else []
        return named([*words, exits, *recovered, f"seed{options.seed}"], self.settings)

    @property
    def tested(self) -> str:
        """What the pass over the test images is called: as the model, but in full precision seeds do not matter."""
        if self.kind != "float":
            return self.name
        settings = self.settings | {"options": {"task": self.config.options.task}}
        return named(["float", "no-exits" if self.bare else self.exits], settings)

    @property
    def beginning(self) -> Case | None:
        """The same without training, which training then goes on from; None if there is none, or it would differ.

        Asked for a metric, a search that training follows is asked for less of it.
        """
        options, budget = self.config.options, self.config.budget
        if not options.recovery_steps or self.kind not in ("best", "search"):
            return None
        if self.kind == "search" and budget.asks_for_metric:
            return None
        return replace(self, config=replace(self.config, options=replace(options, recovery_steps=0)))

    @property
    def fitted(self) -> str:
        """What a search fits; those that fit the same are best done by one process. Empty for others."""
        if self.kind != "search":
            return ""
        how, values = self.config.search, self.settings
        options = {key: value for key, value in values["options"].items() if not key.startswith("recovery")}
        widths = [how.bits, how.bit_min, how.bit_max, how.act_min, how.act_max, how.search_bits]
        return named(["fit"], [values["weights"], self.model, self.bare, self.data, options, widths])

    @property
    def effort(self) -> float:
        """Roughly how long it takes to make: about one for a pass over the calibration images."""
        passes = {"float": 1, "uniform": 5, "best": 30, "search": 45 if self.config.search.bits == "both" else 35}
        trained = self.config.options.recovery_steps / 10
        return trained + (10 if self.beginning is not None else passes[self.kind])


def case_of(table: TableFile, row: Row, name: str, seed: int) -> Case:
    """The model that a row needs at a seed."""
    kinds: dict[str, Kind] = {"float": "float", "maqee": "search"}
    kind = kinds.get(row.method, "best" if row.bits == BEST else "uniform")
    model = table.models[row.exits].replace("{seed}", str(seed))
    if Path(model).exists():  # workers may be started in another folder
        model = str(Path(model).resolve())
    bare = row.chosen == "none"
    return Case(kind, row.exits, model, file_hash(model), bare, table.data, table.config(name, seed))


def named(words: list[str], settings: Any) -> str:
    """Words that are fit for a file name, and the first letters of a hash of everything."""
    digest = hashlib.sha256(to_json(settings).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", "-".join([*words, digest]))


def file_hash(model: str) -> str:
    """A hash of the model's files, so that other weights in the same place are another model."""
    folder = Path(resolve_model(model))
    files = [folder / CONFIG, folder / WEIGHTS]
    if not all(file.is_file() for file in files):
        return ""
    return "".join(_hash_of(file, file.stat().st_mtime_ns) for file in files)


@cache
def _hash_of(file: Path, changed: int) -> str:
    """Of one file, once: every row and seed asks again."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
