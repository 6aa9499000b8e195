"""`maqee ls`: everything that has a name."""

from __future__ import annotations

from typing import Any

from maqee.cli.options import Figures, Json
from maqee.cli.output import deliver


def list_things(out: Figures = None, json: Json = False) -> None:
    """List models, exit schemes and heads, quantization methods, data sets, tasks, training stages and recipes."""
    from maqee.training.catalogue import list_names

    deliver(list_names(), _lines, json, out)


def _lines(names: dict[str, Any]) -> str:
    return "\n".join(f"{title.replace('_', ' ')}: {', '.join(entries)}" for title, entries in names.items())
