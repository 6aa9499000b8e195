"""Everything that has a name, and so can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maqee.data.readers import readers
from maqee.exits import heads
from maqee.models import presets
from maqee.quant import methods
from maqee.runtime.engines import engines
from maqee.tasks import tasks
from maqee.training.shipped import list_recipes
from maqee.training.stages import stages
from maqee.values import plain

EXIT_SCHEMES = ("lgvit", "lgvit-raw", "vit-ee")


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Names by what they are names of.

    Attributes:
        models: presets that `load_backbone` knows.
        exit_schemes: what `add_exits` takes beside one kind of head for all exits.
        exit_heads: kinds of heads.
        quantization_methods: for `quantize` and `compress`.
        engines: for `load`.
        data_sets: for `open_data`.
        tasks: what can be predicted.
        training_stages: for recipes.
        recipes: that come with maqee.
    """

    models: tuple[str, ...]
    exit_schemes: tuple[str, ...]
    exit_heads: tuple[str, ...]
    quantization_methods: tuple[str, ...]
    engines: tuple[str, ...]
    data_sets: tuple[str, ...]
    tasks: tuple[str, ...]
    training_stages: tuple[str, ...]
    recipes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee ls --json` prints them."""
        values: dict[str, Any] = plain(self)
        return values


def list_names() -> Catalogue:
    """Models, exit schemes and heads, quantization methods, engines, data sets, tasks, training stages and recipes."""
    return Catalogue(
        models=tuple(presets.names()),
        exit_schemes=EXIT_SCHEMES,
        exit_heads=tuple(heads.names()),
        quantization_methods=tuple(methods.names()),
        engines=tuple(engines.names()),
        data_sets=tuple(readers.names()),
        tasks=tuple(tasks.names()),
        training_stages=tuple(stages.names()),
        recipes=tuple(list_recipes()),
    )
