"""Rows from runs: figures over seeds, and N/A where a seed did not reach the target."""

from __future__ import annotations

from typing import Any

import pytest

from maqee.tables.collect import bits_words, dotted, joined, mean_and_deviation, row_of
from maqee.tables.table_file import Row, TableFile

TABLE = TableFile(
    name="t",
    backbone="ViT",
    models={"mlp": "m"},
    rows={"erq": Row(method="erq", exits="mlp", bits="w4a4"), "best": Row(method="erq", exits="mlp", bits="best")},
)


def make_run(seed: int, accuracy: float, reached: bool = True, revision: str = "abc") -> dict[str, Any]:
    figures = {"accuracy": accuracy, "mean_exit": 2.0 + seed, "bops": 1e7, "thresholds": [0.8]}
    return {
        "run": f"erq-seed{seed}-0a1b2c3d", "seed": seed, **figures,
        "target": 0.9, "controlled": figures if reached else None, "training_kept": None,
        "weight_bits": 4.0 + seed, "model_revision": "abc",
        "activation_bits": 4.0, "execution": "simulated", "environment": {"revision": revision},
    }  # fmt: skip


def test_mean_and_deviation() -> None:
    assert mean_and_deviation([1.0, 3.0]) == {"mean": 2.0, "std": 1.414214}
    assert mean_and_deviation([0.5]) == {"mean": 0.5, "std": None}


def test_a_row() -> None:
    row = row_of(TABLE, "erq", [make_run(0, 0.8), make_run(1, 0.9, revision="abd")], "maqee table t --only erq")
    assert row["accuracy"] == {"mean": 0.85, "std": 0.07071068}
    assert (row["seeds"], row["bits"], row["thresholds"], row["recovered"]) == (2, "W4A4", "0.8", 0)
    assert row["controlled"]["target"] == 0.9
    assert row["settings"] == {}
    assert row["controlled"]["mean_exit"] == {"mean": 2.5, "std": 0.7071068}
    assert row["revision"] == "abc, abd"  # of models and of rows
    assert [run["seed"] for run in row["runs"]] == [0, 1]


def test_a_curve_is_of_the_seeds_that_have_it() -> None:
    """Runs of older versions do not."""
    points = [{"offset": -0.1, "accuracy": accuracy, "mean_exit": 2.0, "bops": 1e6} for accuracy in (0.5, 0.7)]
    runs = [make_run(seed, 0.8) | {"curve": [point]} for seed, point in enumerate(points)]
    row = row_of(TABLE, "erq", runs, "")
    assert row["curve"] == [
        {
            "offset": -0.1,
            "seeds": 2,
            "accuracy": {"mean": 0.6, "std": 0.1414214},
            "mean_exit": {"mean": 2.0, "std": 0.0},
            "bops": {"mean": 1e6, "std": 0.0},
        }
    ]
    assert [run["curve"] for run in row["runs"]] == [[point] for point in points]
    assert row_of(TABLE, "erq", [*runs, make_run(2, 0.8)], "")["curve"] == row["curve"]
    assert row_of(TABLE, "erq", [make_run(2, 0.8)], "")["curve"] is None


def test_what_searches_cost() -> None:
    """Runs of older versions do not know it."""
    runs = [make_run(0, 0.8) | {"search_images": 1000}, make_run(1, 0.9) | {"search_images": 3000}, make_run(2, 0.9)]
    row = row_of(TABLE, "erq", runs, "")
    assert row["search_images"] == {"mean": 2000.0, "std": 1414.214}
    assert [run["search_images"] for run in row["runs"]] == [1000, 3000, None]
    assert row_of(TABLE, "erq", runs[2:], "")["search_images"] is None


def test_settings_of_a_row_are_named_as_on_the_command_line() -> None:
    own = {"search": {"grain": "block", "use_pgr": False}, "options": {"recovery": {"lr": 1e-4}}}
    assert dotted(own) == {"search.grain": "block", "search.use_pgr": False, "options.recovery.lr": 1e-4}
    assert dotted({}) == {}


def test_a_seed_that_does_not_reach_the_target() -> None:
    row = row_of(TABLE, "erq", [make_run(0, 0.8), make_run(1, 0.9, reached=False)], "")
    assert (row["controlled"], row["controlled_reached"]) == (None, 1)


@pytest.mark.parametrize(("seeds", "words"), [((0,), "best W4A4"), ((0, 1), "best W4A4/W5A4")])
def test_pairs_that_were_best(seeds: tuple[int, ...], words: str) -> None:
    assert bits_words(TABLE.rows["best"], [make_run(seed, 0.8) for seed in seeds]) == words


def test_environments_of_several_machines() -> None:
    one = {"hardware": {"cores": 16, "gpu": "H200"}, "revision": "abc"}
    other = {"hardware": {"cores": 2}, "revision": "abc"}
    assert joined([one, one]) == one
    assert joined([one, other]) == {"hardware": {"cores": "16 / 2", "gpu": "H200"}, "revision": "abc"}
    assert joined([joined([one, other]), one])["hardware"]["cores"] == "16 / 2"  # in whatever order they are joined
    assert joined([]) == {}
