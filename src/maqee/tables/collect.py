"""Rows from finished runs: mean and standard deviation over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maqee.io import read_json
from maqee.tables.grid import row_works
from maqee.tables.restore import FACTS
from maqee.tables.table_file import BEST, Row, TableFile
from maqee.tables.work import ROW, Work

_FIGURES = ("accuracy", "mean_exit", "bops")
_SIDE_BY_SIDE = " / "  # between values that differ
_BITS = ("weight_bits", "activation_bits")
_OF_A_RUN = ("run", "seed", *_FIGURES, "thresholds", *_BITS, "training_kept", "target", "controlled", "model_revision")
_LATER = ("search_images", "curve")  # of a run; older versions do not have them


def collect_rows(
    table: TableFile, grid: list[Work], root: Path, command: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows that have finished runs, and what they have in common, with the environments they were made in.

    Args:
        table: what was wanted.
        grid: all work.
        root: the folder of all runs.
        command: that makes the table; a row's own is the same with --only.
    """
    rows: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    environments: list[dict[str, Any]] = []
    for name in table.rows:
        folders = [root / work.folder for work in row_works(grid, name) if work.finished(root)]
        runs = [read_json(folder / ROW) | {"run": folder.name} for folder in folders]
        if runs:
            rows.append(row_of(table, name, runs, f"{command} --only {name}"))
            facts = {key: runs[0][key] for key in FACTS}
            environments += [run["environment"] for run in runs]
    return rows, {**facts, "environment": joined(environments)}


def joined(values: list[dict[str, Any]]) -> dict[str, Any]:
    """Dictionaries as one; what differs between them stands side by side.

    Example:
        >>> joined([{"gpu": "H200", "versions": {"torch": "2.11"}}, {"versions": {"torch": "2.13"}}])
        {'gpu': 'H200', 'versions': {'torch': '2.11 / 2.13'}}
    """
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for value in values for key in value):
        parts = [value[key] for value in values if key in value]
        if isinstance(parts[0], dict):
            found[key] = joined(parts)
        else:
            different = dict.fromkeys(word for part in parts for word in str(part).split(_SIDE_BY_SIDE))
            found[key] = parts[0] if len(different) == 1 else _SIDE_BY_SIDE.join(different)
    return found


def mean_and_deviation(values: Sequence[float]) -> dict[str, float | None]:
    """Over seeds; the deviation is that of a sample, and there is none of a single value.

    Example:
        >>> mean_and_deviation([1.0, 3.0])
        {'mean': 2.0, 'std': 1.414214}
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": _rounded(statistics.fmean(values)), "std": None if deviation is None else _rounded(deviation)}


def row_of(table: TableFile, name: str, runs: list[dict[str, Any]], command: str) -> dict[str, Any]:
    """One row from its finished runs; controlled performance is N/A (null) where a seed does not reach the target."""
    row = table.rows[name]
    reached = [run["controlled"] for run in runs if run["controlled"] is not None]
    targets = [run["target"] for run in runs if run["target"] is not None]
    controlled = None
    if targets and len(reached) == len(runs):
        controlled = {
            "target": _rounded(statistics.fmean(targets)),
            **{key: mean_and_deviation([values[key] for values in reached]) for key in _FIGURES},
        }
    return {
        "name": name,
        "backbone": table.backbone,
        "bits": bits_words(row, runs),
        "method": row.method,
        "quantizer": row.quantizer if row.method == "maqee" else None,
        "exits": "none" if row.chosen == "none" else row.exits,
        "thresholds": _threshold_words(table, row),
        "recovered": row.recovered,
        "training_kept": sum(run["training_kept"] for run in runs) if row.recovered else None,
        "search_images": _searched(runs),
        "settings": dotted(row.compress),
        "execution": runs[0]["execution"],
        "seeds": len(runs),
        **{key: mean_and_deviation([run[key] for run in runs]) for key in _FIGURES},
        "weight_bits": mean_and_deviation([run["weight_bits"] for run in runs]),
        "activation_bits": mean_and_deviation([run["activation_bits"] for run in runs]),
        "controlled": controlled,
        "controlled_reached": len(reached) if targets else None,
        "curve": _curve(runs),
        "command": command,
        "revision": ", ".join(sorted({str(made) for run in runs for made in _revisions(run)})),
        "runs": [
            {key: run[key] for key in _OF_A_RUN}
            | {key: run.get(key) for key in _LATER}
            | {"revision": run["environment"]["revision"]}
            for run in runs
        ],
    }


def _searched(runs: list[dict[str, Any]]) -> dict[str, float | None] | None:
    """Images that searches have run through the network, of the runs that know it."""
    known = [run["search_images"] for run in runs if run.get("search_images") is not None]
    return mean_and_deviation(known) if known else None


def _curve(runs: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """What other offsets of all thresholds give, over the runs that know it; None where there is none, or no exits."""
    curves = [run["curve"] for run in runs if run.get("curve") is not None]
    if not curves:
        return None
    return [
        {
            "offset": points[0]["offset"],
            "seeds": len(curves),
            **{key: mean_and_deviation([point[key] for point in points]) for key in _FIGURES},
        }
        for points in zip(*curves, strict=True)
    ]


def dotted(values: dict[str, Any]) -> dict[str, Any]:
    """Values of sections within sections, by the keys that --set takes.

    Example:
        >>> dotted({"search": {"grain": "block"}, "options": {"samples": 128}})
        {'search.grain': 'block', 'options.samples': 128}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = dotted(value) if isinstance(value, dict) else None
        found |= {key: value} if inner is None else {f"{key}.{name}": one for name, one in inner.items()}
    return found


def _revisions(run: dict[str, Any]) -> tuple[str | None, str | None]:
    """Of the sources that made the model, and of those that measured it."""
    return run["model_revision"], run["environment"]["revision"]


def bits_words(row: Row, runs: list[dict[str, Any]]) -> str:
    """Bits as a column shows them: FP32, W4A4, MP4/4 where weights differ, MP where both are chosen."""
    if row.method == "float":
        return "FP32"
    if row.method == "maqee":
        return "MP weights" if row.bits == "weights" else "MP both"
    if row.bits == BEST:
        pairs = {(run["weight_bits"], run["activation_bits"]) for run in runs}
        return "best " + "/".join(f"W{weight:.0f}A{activation:.0f}" for weight, activation in sorted(pairs))
    return f"MP {str(row.bits).upper()}" if row.method == "mptq" else str(row.bits).upper()


def _threshold_words(table: TableFile, row: Row) -> str:
    chosen = table.threshold if row.chosen == "default" else row.chosen
    return chosen if isinstance(chosen, str) else f"{chosen:g}"


def _rounded(value: float) -> float:
    """To seven figures: more are noise."""
    return float(f"{value:.7g}")
