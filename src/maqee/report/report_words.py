"""The words and tables of a report: what a run is, in one sentence and in rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from maqee.apq import Expected, Figures
from maqee.report.plan_table import asked_words
from maqee.report.report_content import RunContent
from maqee.report.tables import threshold_words


class Tile(NamedTuple):
    """A number that is worth a second look."""

    value: str
    words: str


def summary(run: RunContent) -> str:
    """The whole run in one sentence."""
    got, score = run.plan.got, _score_words(run)
    early = sum(got.exit_mass[:-1])
    leaving = f"{early:.0%} of the images leave early" if run.exits else "every image runs to full depth"
    return (
        f"{score[:1].upper()}{score[1:]}, simulated, at {cost_words(run)}: {leaving}, and layers have "
        f"{bits_words(got)} on average."
    )


def several_summary(runs: Sequence[RunContent]) -> str:
    """Several runs in one sentence: which is the best, and which the cheapest."""
    if len({(run.score, run.timed) for run in runs}) > 1:
        return "These runs differ in their score or in what they count as cost, so that none is called the best."
    best = max(runs, key=lambda run: _likely(run).metric)
    cheapest = min(runs, key=lambda run: run.plan.got.ms or _likely(run).bops)
    first = f"{best.name} has the highest score: {_score_words(best)}, simulated, at {cost_words(best)}"
    if cheapest is best:
        return f"{first}; it is the cheapest, too."
    return f"{first}. {cheapest.name} is the cheapest: {_score_words(cheapest)}, at {cost_words(cheapest)}."


def _score_words(run: RunContent) -> str:
    """The score, on new images where that is expected."""
    expected = run.plan.expected
    if expected is None:
        return f"{run.score} {run.plan.got.metric:.2%} on the images that chose it"
    error = "" if expected.metric_error is None else f" ± {expected.metric_error:.2%}"
    return f"{run.score} {expected.metric:.2%}{error} on new images (expected)"


def cost_words(run: RunContent) -> str:
    """The cost, on new images where that is expected, beside full precision's where that is known."""
    if run.plan.got.ms is not None:
        return f"{run.plan.got.ms:.3g} ms an image (measured: {run.plan.options.timed_on})"
    spent = _likely(run).bops
    if run.full_bops is None:
        return f"{spent:.3e} BOPs an image"
    return f"{spent / run.full_bops:.2%} of the bit operations of full precision"


def _likely(run: RunContent) -> Figures | Expected:
    """What holds for new images, as far as it is known."""
    return run.plan.expected or run.plan.got


def bits_words(figures: Figures) -> str:
    """Mean widths."""
    words = f"{figures.weighted_bits:.3g} bits of weights"
    return words if figures.activation_bits is None else f"{words} and {figures.activation_bits:.3g} of activations"


def choice_words(threshold: float) -> str:
    """What a threshold makes of an exit."""
    return "all leave" if threshold == 0 else threshold_words(threshold)


def kicker(run: RunContent) -> str:
    """What the run is about, in a few words above its name."""
    data = run.source.get("data", {}).get("data")
    return ", ".join(str(part) for part in (data, run.plan.task) if part)


def tiles(run: RunContent) -> list[Tile]:
    """What a reader wants to know first."""
    got, expected = run.plan.got, run.plan.expected
    found = [Tile(f"{got.metric:.2%}", f"{run.score} on the {_images(run)} that chose, simulated")]
    if expected is not None:
        error = "" if expected.metric_error is None else f" ± {expected.metric_error:.2%}"
        found = [Tile(f"{expected.metric:.2%}", f"{run.score}{error} expected on new images, simulated")]
    if got.ms is not None:
        found.append(Tile(f"{got.ms:.3g} ms", "an image, measured"))
    elif run.full_bops is not None:
        found.append(Tile(f"{run.full_bops / _likely(run).bops:.3g} x", "fewer bit operations than full precision"))
    else:
        found.append(Tile(f"{_likely(run).bops:.3g}", "bit operations an image"))
    if run.exits:
        blocks = f"of {run.plan.bits.depth} blocks run for the mean image"
        found.append(Tile(f"{_likely(run).mean_exit:.2f}", blocks))
    if got.activation_bits is None:
        return [*found, Tile(f"{got.weighted_bits:.3g}", "bits of weights on average")]
    pair = f"{got.weighted_bits:.3g} / {got.activation_bits:.3g}"
    return [*found, Tile(pair, "bits of weights / activations on average")]


def guarantee_words(run: RunContent) -> str:
    """What was measured for a guarantee, beside its promise."""
    found = run.plan.guarantee
    if found is None:
        return ""
    words = f"Made by {found.method} with {found.n} calibration images that the search has not seen"
    return f"{words}: their mean gap is {found.empirical_gap:+.4f}, and {found.epsilon:g} was allowed (simulated)."


def asked(run: RunContent) -> str:
    """What was asked for; a drop also as the number that it comes to."""
    words = asked_words(run.asked, run.score, run.plan.budget.asks_for_nothing)
    said_as_drop = run.asked.max_drop is not None and run.needed is not None
    return f"{words}: {run.needed:.2%}" if said_as_drop else words


def verdict(run: RunContent) -> str:
    """Whether it was kept, as far as the search can tell."""
    if not run.finished:
        return "The search was stopped early: this is the best so far, and the same command goes on."
    if run.plan.guarantee is not None:
        return "The thresholds were then changed by the guarantee below."
    if not run.plan.history or run.asked.asks_for_nothing:
        return ""
    missed = run.plan.history[-1].best_excess
    if missed <= 0:
        return _kept(run)
    amount = f"{missed:.2%}" if run.asked.asks_for_metric else f"{missed:.3g}"
    return f"Missed by {amount}: this is the nearest that was found."


def _kept(run: RunContent) -> str:
    """That it was kept; and where less is expected, why: see `apq.held_out`."""
    expected = run.plan.expected
    if run.needed is None or expected is None or expected.metric >= run.needed or run.asked.target_on != "expected":
        return "Kept."
    less = 100 * (run.needed - expected.metric)
    return f"Kept by the thresholds; with bits chosen on other images too, {less:.2f} points less are expected."


def _images(run: RunContent) -> str:
    return "calibration images" if run.trace is None else f"{run.trace.samples} calibration images"
