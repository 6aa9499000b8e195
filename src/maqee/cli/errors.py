"""Errors of the library in the words of the command line: parameters become the options that set them.

Library errors begin with the name of a parameter and a colon ("min_metric: 0.99 cannot be met ..."), or hint at one in
brackets ("... (fit_images)."). A user of the command line knows `--min-accuracy` and `--fit-images`.
"""

from __future__ import annotations

import re

# Parameters and keys of the library, and the option that sets each. Where the two have the same name, dashes are added.
OPTIONS = {
    "act_bits": "--act-bits",
    "act_max": "--act-range",
    "act_min": "--act-range",
    "act_widths": "--act-range",
    "against": "--against",
    "average_bits": "--avg-bits",
    "batch_size": "--batch",
    "bit_max": "--weight-range",
    "bit_min": "--weight-range",
    "bits": "--bits",
    "budget.average_bits": "--avg-bits",
    "budget.like": "--like",
    "budget.max_bops": "--max-bops",
    "budget.max_ms": "--max-ms",
    "budget.max_drop": "--max-drop",
    "budget.min_metric": "--min-accuracy",
    "budget.target_on": "--target-on",
    "classifier": "--classifier",
    "controlled": "--controlled",
    "data_root": "--data-root",
    "delta": "--delta",
    "device": "--device",
    "epsilon": "--epsilon",
    "exit_mass": "--exit-mass",
    "exits": "--exits",
    "fit_images": "--fit-images",
    "frontier": "--frontier",
    "grain": "--grain",
    "image_size": "--image-size",
    "images": "--images",
    "lambda_outer": "--lambda-outer",
    "like": "--like",
    "lr": "--lr",
    "max_bops": "--max-bops",
    "max_drop": "--max-drop",
    "max_ms": "--max-ms",
    "max_swaps": "--max-moves",
    "mean_exits": "--mean-exit",
    "method": "--method",
    "min_metric": "--min-accuracy",
    "model": "--model",
    "num_classes": "--classes",
    "objective": "--objective",
    "options.fit_images": "--fit-images",
    "options.method": "--method",
    "options.quantization.classifier": "--classifier",
    "options.quantization.overrides": "--layer",
    "options.quantization.patch": "--patch",
    "options.recovery.batch_size": "--batch",
    "options.recovery.lr": "--lr",
    "options.recovery.weights": "--exit-weights",
    "options.recovery_steps": "--recover",
    "options.risk.delta": "--delta",
    "options.risk.epsilon": "--epsilon",
    "options.risk.loss": "--risk-loss",
    "options.risk.method": "--risk",
    "options.samples": "--samples",
    "options.seed": "--seed",
    "options.task": "--task",
    "out": "--out",
    "patch": "--patch",
    "picture": "--picture",
    "precision": "--precision",
    "recovery_steps": "--recover",
    "repeats": "--repeats",
    "samples": "--samples",
    "scored": "--scored",
    "search.act_max": "--act-range",
    "search.act_min": "--act-range",
    "search.bit_max": "--weight-range",
    "search.bit_min": "--weight-range",
    "search.bits": "--bits",
    "search.frontier": "--frontier",
    "search.grain": "--grain",
    "search.lambda_outer": "--lambda-outer",
    "search.max_swaps": "--max-moves",
    "search.objective": "--objective",
    "search.recovery_steps": "--recover-swaps",
    "search.search_bits": "--search-bits",
    "search_bits": "--search-bits",
    "seed": "--seed",
    "seeds": "--seed",
    "solver": "--solver",
    "split": "--split",
    "stage": "--stage",
    "target_on": "--target-on",
    "task": "--task",
    "threads": "--threads",
    "threshold": "--threshold",
    "weight_bits": "--weight-bits",
    "widths": "--weight-range",
}

_NAME = r"[a-z_][a-z_.]*[a-z_]"
_BEGINNING = re.compile(rf"{_NAME}(?:(?:, | and ){_NAME})*(?=: | is missing)")
_HINT = re.compile(rf"(?<=\(){_NAME}(?=\))")
_IDENTIFIER = re.compile(r"(?<![\w./'\"-])[a-z]+_[a-z_]+(?![\w/'\"=-]|\.\w)")  # a word that only a program would write


def translate(message: str) -> str:
    """The message with the names of options in place of those of parameters.

    Example:
        >>> translate("min_metric: 0.99 cannot be met: fit on fewer images (fit_images).")
        '--min-accuracy: 0.99 cannot be met: fit on fewer images (--fit-images).'
    """
    beginning = _BEGINNING.match(message)
    if beginning is not None:
        message = _beginning(beginning[0]) + message[beginning.end() :]
    return _IDENTIFIER.sub(_option, _HINT.sub(_option, message))


def _beginning(names: str) -> str:
    """The options of the parameters that a message begins with; two that one option sets are named once."""
    words = re.findall(_NAME, re.sub(r"\band\b", ",", names))
    options = [OPTIONS.get(word, word) for word in words]
    kept = list(dict.fromkeys(options))
    return re.sub(_NAME, _option, names) if kept == options else " and ".join(kept)


def _option(found: re.Match[str]) -> str:
    return OPTIONS.get(found[0], found[0])
