"""A plan as text: widths, thresholds, what was asked, what came of it and how the search went."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from maqee.report.bit_table import bit_lines
from maqee.report.tables import expected_words, threshold_words
from maqee.widths import BlockWidths

if TYPE_CHECKING:
    from maqee.apq import Budget, Figures, Plan
    from maqee.apq.records import Position, Step


def plan_table(plan: Plan) -> str:
    """A plan as it was found, with figures of the calibration images; quantization is simulated."""
    from maqee.tasks import tasks

    got, score = plan.got, tasks[plan.task].score_name
    lines = [
        *bit_lines(plan.bits.to_json()),
        _line("bits on average", _mean_bits(got)),
        _line("exits after block", " ".join(map(str, plan.exit_blocks))),
        _line("thresholds", " ".join(map(threshold_words, plan.thresholds))),
        _line("leaving", " ".join(f"{share:.0%}" for share in got.exit_mass)),
        _line("asked", asked_words(plan.budget.or_usual(plan.options), score, plan.budget.asks_for_nothing)),
        _line("on calibration", f"{_figures(got, score)} (simulated)"),
    ]
    if plan.options.exit_ms is not None:
        lines.append(_line("cost", f"{plan.options.timed_on} (measured)"))
    if plan.expected is not None:
        lines.append(_line("on other images", expected_words(asdict(plan.expected), score)))
    if plan.history and plan.history[0].kind == "start":
        lines.append(_first_widths(plan.history, score))
        lines.append(_line("search", search_words(plan.history)))
    if plan.guarantee is not None:
        lines.append(_line(f"guarantee ({plan.guarantee.method})", plan.guarantee.statement))
    return "\n".join(lines)


def asked_words(budget: Budget, score: str, by_default: bool = False) -> str:
    """What was asked for, in words.

    Args:
        budget: what the search looked for.
        score: what the task calls the score of an image.
        by_default: nothing was asked for; this is what is usual then.
    """
    if budget.like is not None:
        words = f"the best {score} at the cost of uniform {budget.like.upper()}"
        return words if budget.max_drop is None else f"{words} at most {budget.max_drop:.2%} below its full depth"
    if budget.max_bops is not None:
        return f"at most {budget.max_bops:.4g} BOPs"
    if budget.max_ms is not None:
        return f"at most {budget.max_ms:.4g} ms"
    if not budget.asks_for_metric:
        return "the least J"
    if budget.max_drop is None:
        words = f"{score} of at least {budget.min_metric:.2%}"
    else:
        base = "full precision" if budget.drop_from == "float" else "what the quantized model can reach"
        words = f"{score} at most {budget.max_drop:.2%} below {base}"
    where = "on images that did not choose" if budget.target_on == "expected" else "on calibration images"
    return f"{words}, {where}" + (" (the usual; nothing was asked)" if by_default else "")


def search_words(history: tuple[Step, ...]) -> str:
    """What a search did, in one line."""
    words = []
    for kind, one, many in (
        ("exact", "allocation", "allocations"),
        ("move", "move", "moves"),
        ("swap", "swap", "swaps"),
    ):
        steps = [step for step in history if step.kind == kind]
        if steps:
            kept = sum(step.accepted for step in steps)
            words.append(f"{len(steps)} {one if len(steps) == 1 else many} tried, {kept} kept")
    trained = [step.accepted for step in history if step.kind == "recovery"]
    if trained:
        words.append("training kept" if trained[-1] else "training not kept")
    return "; ".join(words) or "thresholds only"


def _first_widths(history: tuple[Step, ...], score: str) -> str:
    """The same target with the widths that the search began with, to compare with; they were never trained."""
    position = history[0].position
    notes = "on calibration, simulated"
    if any(step.kind == "recovery" and step.accepted for step in history):
        notes += ", without training"
    if position.excess > 0:
        notes += "; misses what is asked"
    return _line(first_widths_name(position), f"{_figures(position.figures, score)} ({notes})")


def first_widths_name(position: Position) -> str:
    """What to call the widths that a search began with."""
    first = position.bits.blocks[0]
    uniform = set(position.bits.blocks) == {BlockWidths.uniform(*first.qkv)}
    return f"uniform W{first.qkv[0]}A{first.qkv[1]}" if uniform else "first widths"


def _figures(figures: Figures, score: str) -> str:
    return f"{score} {figures.metric:.2%} at mean exit {figures.mean_exit:.2f}, {figures.cost_words}"


def _mean_bits(figures: Figures) -> str:
    words = f"{figures.weighted_bits:.3g} of weights"
    return words if figures.activation_bits is None else f"{words}, {figures.activation_bits:.3g} of activations"


def _line(name: str, words: str) -> str:
    return f"{name:<20} {words}"
