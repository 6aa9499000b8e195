"""Plans, traces and requests from before some choice could be made.

Those from before widths were pairs by layer have weight bits of every block and one activation width for all. None of
them say anything of choices that came later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What a file did not say because there was no choice yet; not always today's default.
_MEANT: dict[str, dict[str, Any]] = {
    "budget": {"target_on": "calibration"},
    "options": {"bits": "weights", "grain": "block", "candidates": "grid", "objective": "paper"},
}
_COUNTED = {"scores": "counted"}  # of options that were written before there was another way
_SAME = ("patch", "classifier", "head", "merge")


def current_plan(values: dict[str, Any]) -> dict[str, Any]:
    """A plan's values as they are written now; values that are not of an older kind stay as they are."""
    values = with_scores(values, "options")
    other = values.get("other_bits")
    if not isinstance(other, dict):
        return values
    kept = {name: value for name, value in values.items() if name != "other_bits"}
    history = values.get("history", [])
    kept["history"] = [_current_step(step, other) for step in history] if isinstance(history, list) else history
    for section, meant in _MEANT.items():
        if isinstance(written := values.get(section), dict):
            kept[section] = {**meant, **written}
    return {**kept, "bits": _settings(values.get("bits"), other)}


def with_scores(values: dict[str, Any], section: str) -> dict[str, Any]:
    """The values with search options that say how answers were judged, if they did not."""
    written = values.get(section)
    return {**values, section: {**_COUNTED, **written}} if isinstance(written, dict) else values


def current_request(choices: dict[str, Any]) -> dict[str, Any]:
    """What an older request asked for, with what it did not say because there was no choice yet."""
    current = with_scores(choices, "search")
    for section, meant in (("budget", _MEANT["budget"]), ("search", _MEANT["options"])):
        if isinstance(written := current.get(section, {}), dict):
            current[section] = {**meant, **written}
    return current


def current_trace(values: dict[str, Any]) -> dict[str, Any]:
    """The same for what a trace holds beside its arrays."""
    bits = values.get("bits")
    if not isinstance(bits, dict) or "weights" not in bits:
        return values
    return {**values, "bits": _settings(bits["weights"], bits)}


def _current_step(step: Any, other: Mapping[str, Any]) -> Any:
    """A step of the history; damaged ones are for the reader to complain about."""
    position = step.get("position") if isinstance(step, dict) else None
    if not isinstance(position, dict):
        return step
    return {**step, "position": {**position, "bits": _settings(position.get("bits"), other)}}


def _settings(weights: Any, other: Mapping[str, Any]) -> Any:
    """Settings by layer from weight bits by block; what is no list of them stays as it is."""
    if not isinstance(weights, list):
        return weights
    activations = other.get("activations")
    blocks = [[[bits, activations], [activations] * 2, *[[bits, activations]] * 3] for bits in weights]
    return {"blocks": blocks, **{name: other[name] for name in _SAME if name in other}}
