"""Tables as `maqee table` writes them, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maqee.io import write_json


def figure(mean: float, std: float | None = None) -> dict[str, float | None]:
    return {"mean": mean, "std": std}


def make_row(name: str, **values: Any) -> dict[str, Any]:
    row = {
        "name": name, "backbone": "ViT", "bits": "W4A4", "method": "erq", "quantizer": None, "exits": "lgvit",
        "thresholds": "0.8", "recovered": 0, "training_kept": None, "execution": "simulated", "seeds": 3,
        "accuracy": figure(0.875, 0.0125), "mean_exit": figure(8.25, 0.5), "bops": figure(4.5e10, 5e8),
        "controlled": None, "revision": "abc", "command": f"maqee table t.yaml --only {name}",
    } | values  # fmt: skip
    run = {"seed": 0, "accuracy": row["accuracy"]["mean"], "mean_exit": row["mean_exit"]["mean"]}
    return {"runs": [run | {"bops": row["bops"]["mean"], "thresholds": [0.8, 2.0]}]} | row


def make_controlled(mean_exit: float, bops: float) -> dict[str, Any]:
    return {
        "target": 0.9,
        "mean_exit": figure(mean_exit, 0.25),
        "bops": figure(bops, 1e9),
        "accuracy": figure(0.89),
    }


def make_curve(accuracy: float, bops: float, seeds: int = 3) -> list[dict[str, Any]]:
    """Two offsets: the cheaper one loses two points."""
    return [
        {
            "offset": offset,
            "seeds": seeds,
            "accuracy": figure(accuracy + offset / 10, 0.01),
            "mean_exit": figure(8.0 + 5 * offset, 0.25),
            "bops": figure(bops * (1 + offset), 1e8),
        }
        for offset in (-0.2, 0.0)
    ]


def make_table(*rows: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {
        "table": "a&b", "data": "digits <test>", "images": 360, "task": "classification", "metric": "accuracy",
        "missing": [], "rows": list(rows), "environment": {"versions": {"maqee": "0.1.0"}, "hardware": {"cores": 2}},
    } | values  # fmt: skip


def several_rows() -> list[dict[str, Any]]:
    """Full precision, two baselines, and a plan that beats both."""
    return [
        make_row(
            "plain", method="float", bits="FP32", exits="none", bops=figure(1e12, 0.0), mean_exit=figure(12.0, 0.0)
        ),
        make_row("erq_1", controlled=make_controlled(9.0, 4.8e10), curve=make_curve(0.875, 4.5e10)),
        make_row("repq", method="repq", accuracy=figure(0.8, 0.01), bops=figure(4.6e10, 1e8)),
        make_row(
            "maqee",
            method="maqee",
            quantizer="erq",
            recovered=20,
            training_kept=2,
            accuracy=figure(0.92, 0.01),
            bops=figure(4.2e10, 2e8),
            controlled=make_controlled(7.0, 4e10),
            curve=make_curve(0.92, 4.2e10),
        ),
    ]


def write_saved_table(path: Path, *rows: dict[str, Any], **values: Any) -> Path:
    write_json(path, make_table(*(rows or several_rows()), **values))
    return path
