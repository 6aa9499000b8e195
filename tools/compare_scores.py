"""Thresholds by smoothed scores against counted ones: half of a run's calibration images choose, the others judge.

python -m tools.compare_scores RUN RUN... --out comparison.json

RUN is a folder of `maqee compress`; its trace has what is needed, so that no model runs and no test image is opened. At
each of several costs, thresholds are chosen in three ways: by smoothed scores, by counted ones, and one threshold for
all exits (by counted ones). Halves are drawn anew `--repeats` times; they overlap, so that errors are a little small.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from maqee.apq import Budget, SearchOptions, Trace, policy_figures, problem_within
from maqee.apq.choose import choose_policy, shared_threshold
from maqee.apq.figures import exit_bops
from maqee.apq.records import Scales
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.io import write_json
from maqee.runs import short_name

SHARES = (0.25, 0.4, 0.55, 0.7)  # of the way from the first exit's cost to that of full depth
COUNTED = SearchOptions(scores="counted")
Thresholds = tuple[float, ...]
WAYS: dict[str, Callable[[Trace, Budget], Thresholds]] = {
    "smoothed": lambda trace, budget: choose_policy(trace, budget, Scales(), SearchOptions()).thresholds,
    "counted": lambda trace, budget: choose_policy(trace, budget, Scales(), COUNTED).thresholds,
    "shared": lambda trace, budget: shared_threshold(problem_within(budget, trace, Scales(), COUNTED)).thresholds,
}


def compare(trace: Trace, share: float, repeats: int, seed: int) -> dict[str, Any]:
    """Every way at one cost: what it does on the images that did not choose, on average over the draws."""
    costs = exit_bops(trace)
    budget = Budget(max_bops=float(costs[0] + share * (costs[-1] - costs[0])))
    generator = np.random.default_rng(seed)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for _ in range(repeats):
        chooses = generator.permutation(trace.samples) < trace.samples // 2
        choosing, judging = trace.select(chooses), trace.select(~chooses)
        for name, way in WAYS.items():
            figures = policy_figures(judging, way(choosing, budget))
            found[name].append((figures.metric, figures.bops))
    means = {name: np.mean(pairs, axis=0) for name, pairs in found.items()}
    gained = np.array([a[0] - b[0] for a, b in zip(found["smoothed"], found["counted"], strict=True)])
    return {
        "max_bops": budget.max_bops,
        "metric": {name: float(mean[0]) for name, mean in means.items()},
        "bops": {name: float(mean[1]) for name, mean in means.items()},
        "gained": float(gained.mean()),
        "gained_error": float(gained.std(ddof=1) / np.sqrt(repeats)),
    }


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path, help="Folders of `maqee compress`.")
    parser.add_argument("--repeats", type=int, default=20, help="Draws of halves.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--out", type=Path, required=True, help="Write the figures to this JSON file.")
    given = parser.parse_args(arguments)
    runs = []
    for run in given.runs:
        trace = Trace.load(run / "trace.safetensors")
        rows = [compare(trace, share, given.repeats, given.seed) for share in SHARES]
        runs.append({"run": short_name(run), "task": trace.task, "images": trace.samples, "rows": rows})
        print(f"{short_name(run)}, {trace.samples} images, half of which choose")
        for row in rows:
            words = ", ".join(f"{name} {metric:.2%}" for name, metric in row["metric"].items())
            print(f"  {row['max_bops']:.3e} BOPs: {words}; gained {row['gained']:+.2%} +- {row['gained_error']:.2%}")
    facts = {"seed": given.seed, "repeats": given.repeats, "simulated": True}
    write_json(given.out, {**facts, "runs": runs, "environment": describe_environment()})


if __name__ == "__main__":
    try:
        main()
    except MaqeeError as error:
        sys.exit(f"error: {error}")
