"""Errors of the library in the words of the command line: parameters become the options that set them.

Library errors begin with the name of a parameter and a colon ("min_metric: 0.99 cannot be met ..."), or hint at one in
brackets ("... (fit_images)."). A user of the command line knows `--min-accuracy` and `--fit-images`.
"""

from __future__ import annotations

import re

# Parameters and keys of the library, and the option that sets each. Where the two have the same name, dashes are added.
OPTIONS = {
    "act_bits": "--act-bits",
    "against": "--against",
    "average_bits": "--avg-bits",
    "batch_size": "--batch",
    "bits": "--bits",
    "budget.average_bits": "--avg-bits",
    "budget.max_bops": "--max-bops",
    "budget.max_drop": "--max-drop",
    "budget.min_metric": "--min-accuracy",
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
    "image_size": "--image-size",
    "images": "--images",
    "lambda_outer": "--lambda-outer",
    "lr": "--lr",
    "max_bops": "--max-bops",
    "max_drop": "--max-drop",
    "max_swaps": "--max-swaps",
    "mean_exits": "--mean-exit",
    "method": "--method",
    "min_metric": "--min-accuracy",
    "model": "--model",
    "num_classes": "--classes",
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
    "precision": "--precision",
    "recovery_steps": "--recover",
    "repeats": "--repeats",
    "samples": "--samples",
    "scored": "--scored",
    "search.lambda_outer": "--lambda-outer",
    "search.max_swaps": "--max-swaps",
    "search.recovery_steps": "--recover-swaps",
    "seed": "--seed",
    "seeds": "--seed",
    "solver": "--solver",
    "split": "--split",
    "stage": "--stage",
    "task": "--task",
    "threads": "--threads",
    "threshold": "--threshold",
    "weight_bits": "--weight-bits",
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
        start = re.sub(_NAME, _option, beginning[0])
        message = start + message[beginning.end() :]
    return _IDENTIFIER.sub(_option, _HINT.sub(_option, message))


def _option(found: re.Match[str]) -> str:
    return OPTIONS.get(found[0], found[0])
