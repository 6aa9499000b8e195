"""Options that several verbs share: one wording and one place in the help for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

# Headings in the help, in the order in which they are shown.
ASK, SEARCH, QUANTIZATION, TRAINING, GUARANTEE = (
    "What to ask for",
    "Search",
    "Quantization",
    "Training at the end",
    "Guarantee",
)
MODEL, DATA, PIXELS, RUNNING, OUTPUT = "Model", "Data", "How images are prepared", "Running", "Output"


def writable(out: Path | None) -> Path | None:
    """Complain before hours of work, not after them, if the file of an option cannot be written."""
    from maqee.disk import check_writable_file

    if out is not None:
        check_writable_file(out)
    return out


AnyModel = Annotated[
    str, typer.Argument(metavar="MODEL", help="Preset, run folder, model folder, weights file or Hub name.")
]
TrainedRun = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="Run folder of `maqee train`, one of its stages, or any model with exits."),
]
FinishedRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder written by `maqee train` or `maqee compress`.")
]
Exits = Annotated[
    str,
    typer.Option(help="Exits: none, lgvit, vit-ee, or one head kind for all (see `maqee ls`).", rich_help_panel=MODEL),
]

KnownData = Annotated[
    str | None,
    typer.Option(help="Data set (see `maqee ls`), if the run does not know it.", rich_help_panel=DATA),
]
DataRoot = Annotated[
    Path | None, typer.Option(help="Where the data lie, if not where they were.", rich_help_panel=DATA)
]
Split = Annotated[str, typer.Option(help="Images to look at: test or calibration.", rich_help_panel=DATA)]
Stage = Annotated[
    str | None,
    typer.Option(help="Stage of a training run, e.g. 2-joint; the last one when left out.", rich_help_panel=MODEL),
]
Task = Annotated[
    str | None,
    typer.Option(help="Task (see `maqee ls`); the one that the model was trained for.", rich_help_panel=DATA),
]

Resize = Annotated[
    int | None,
    typer.Option(help="Short side before the crop; the checkpoint's own when left out.", rich_help_panel=PIXELS),
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="Mean of each channel, e.g. 0.5,0.5,0.5, or one for all; the checkpoint's own when left out.",
        rich_help_panel=PIXELS,
    ),
]
Std = Annotated[
    str | None,
    typer.Option(
        help="Standard deviation of each channel, likewise; the checkpoint's own when left out.",
        rich_help_panel=PIXELS,
    ),
]
Resample = Annotated[
    str | None,
    typer.Option(
        help="nearest, box, bilinear, hamming, bicubic or lanczos; the checkpoint's own when left out.",
        rich_help_panel=PIXELS,
    ),
]
Exif = Annotated[
    bool | None,
    typer.Option(
        help="Turn pictures as their EXIF data says; the checkpoint's own, or yes, when left out.",
        rich_help_panel=PIXELS,
    ),
]

MeanExits = Annotated[
    list[str] | None,
    typer.Option(
        help="Mean blocks after which images leave, with commas between them; repeatable.",
        show_default="6, 7.26, 9",
        rich_help_panel=MODEL,
    ),
]
Compile = Annotated[bool, typer.Option(help="Use torch.compile for what torch runs.", rich_help_panel=RUNNING)]
Engine = Annotated[str, typer.Option(help="What runs the model (see `maqee ls`).", rich_help_panel=RUNNING)]

MaxBops = Annotated[float | None, typer.Option(help="Largest expected cost of an image, in BOPs.", rich_help_panel=ASK)]
MaxMs = Annotated[
    float | None,
    typer.Option(
        help="Largest expected time of an image, in milliseconds, where that is the cost.", rich_help_panel=ASK
    ),
]
MinAccuracy = Annotated[
    float | None,
    typer.Option(
        help="Least accuracy, 0 to 1; for other tasks the mean score of an image.",
        rich_help_panel=ASK,
    ),
]
MaxDrop = Annotated[
    float | None,
    typer.Option(help="Largest accuracy drop from full precision (0.01 = 1 point).", rich_help_panel=ASK),
]
TargetOn = Annotated[
    str | None,
    typer.Option(
        help="Where the accuracy must be reached: expected (on new images, by cross-validation) or calibration (on the "
        "images that chose, which flatter).",
        show_default="expected",
        rich_help_panel=ASK,
    ),
]

Controlled = Annotated[
    float | None,
    typer.Option(
        help="The paper's first protocol: move all thresholds by one offset, to the cheapest policy that reaches this "
        "accuracy on calibration images.",
        rich_help_panel=ASK,
    ),
]

Method = Annotated[str, typer.Option(help="Quantization method (see `maqee ls`).", rich_help_panel=QUANTIZATION)]
Methods = Annotated[
    str,
    typer.Option("--method", help="Quantization methods with commas between them.", rich_help_panel=QUANTIZATION),
]
Bits = Annotated[str, typer.Option(help="Bits of weights and activations, e.g. W4A4.", rich_help_panel=QUANTIZATION)]
Patch = Annotated[
    str | None,
    typer.Option(
        help="Bits of the patch embedding: WEIGHT/ACTIVATION (8/8) or float.",
        show_default="float",
        rich_help_panel=QUANTIZATION,
    ),
]
Classifier = Annotated[
    str | None,
    typer.Option(
        help="Bits of the final classifier (of a detector: of both final heads), likewise.",
        show_default="float",
        rich_help_panel=QUANTIZATION,
    ),
]
CommonSteps = Annotated[
    bool,
    typer.Option(
        "--common-steps",
        help="Let the two groups of weights of `erq` have a common step, so that one product does for both.",
        rich_help_panel=QUANTIZATION,
    ),
]
Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="PATTERN=BITS",
        help="Bits of layers whose names match a pattern, e.g. 'mlp\\.fc2=6/4'; repeatable, the first match counts.",
        rich_help_panel=QUANTIZATION,
    ),
]
FitImages = Annotated[
    int | None,
    typer.Option(
        help="Calibration images that grids are fitted on.", show_default="32", min=1, rich_help_panel=QUANTIZATION
    ),
]

Device = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:1; the GPU if there is one.", rich_help_panel=RUNNING)
]
Seed = Annotated[int | None, typer.Option(help="Random seed.", show_default="0", min=0, rich_help_panel=RUNNING)]
Threads = Annotated[
    int | None,
    typer.Option(help="Number of processor threads; torch's own choice when left out.", min=1, rich_help_panel=RUNNING),
]
Repeats = Annotated[int, typer.Option(help="Timed repetitions.", min=1, rich_help_panel=RUNNING)]
Precision = Annotated[str, typer.Option(help="fp32 or bf16.", rich_help_panel=RUNNING)]

Figures = Annotated[
    Path | None, typer.Option(help="Write the figures to this JSON file.", callback=writable, rich_help_panel=OUTPUT)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=OUTPUT)]


def split_words(text: str) -> list[str]:
    """Words with commas between them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_target(text: str | None) -> Literal["expected", "calibration"]:
    """Where a metric must be reached; as expected of new images where the option is left out."""
    from maqee.errors import MaqeeError

    if text is None or text == "expected":
        return "expected"
    if text != "calibration":
        raise MaqeeError(f"--target-on: {text!r} is not one of expected, calibration.")
    return "calibration"


def parse_objective(text: str | None) -> Literal["direct", "paper"] | None:
    """What a search looks for; nothing where the option is left out."""
    from maqee.errors import MaqeeError

    if text is None:
        return None
    if text != "direct" and text != "paper":
        raise MaqeeError(f"--objective: {text!r} is not one of direct, paper.")
    return "direct" if text == "direct" else "paper"


def parse_numbers(text: str | None, option: str) -> list[float] | None:
    """Numbers with commas between them; nothing where the option is left out."""
    from maqee.errors import MaqeeError

    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise MaqeeError(f"{option} {text!r} must be numbers with commas between them.") from error


def parse_pixels(
    resize: int | None, mean: str | None, std: str | None, resample: str | None, exif: bool | None
) -> dict[str, Any]:
    """How pictures become pixels, by the names of `maqee.models.Preprocessing`; None where an option is left out."""
    return {
        "resize": resize,
        "mean": parse_numbers(mean, "--mean"),
        "std": parse_numbers(std, "--std"),
        "resample": resample,
        "exif": exif,
    }


def parse_range(text: str | None, option: str) -> tuple[int | None, int | None]:
    """The ends of a range of widths such as 3-6, or of 4, which is 4-4; nothing where the option is left out."""
    from maqee.errors import MaqeeError

    if text is None:
        return None, None
    found = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", text)
    if found is None:
        raise MaqeeError(f"{option}: {text!r} must be the fewest and the most bits, such as 3-6.")
    return int(found[1]), int(found[2] or found[1])


def parse_integers(text: str, option: str) -> list[int]:
    """Whole numbers with commas between them."""
    from maqee.errors import MaqeeError

    try:
        return [int(part) for part in split_words(text)]
    except ValueError as error:
        raise MaqeeError(f"{option} {text!r} must be whole numbers with commas between them.") from error


def parse_spans(text: str, option: str) -> list[int]:
    """Whole numbers with commas between them, or from one to another with a dash: 3-6 is 3,4,5,6."""
    from maqee.errors import MaqeeError

    found: list[int] = []
    for part in split_words(text):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise MaqeeError(f"{option} {text!r} must be whole numbers such as 3-6 or 4,8.")
        found += range(int(low), int(high or low) + 1)
    return found


def parse_mean_exits(texts: list[str] | None) -> list[float]:
    """All numbers of an option that may be given several times."""
    return [number for text in texts or () for number in parse_numbers(text, "--mean-exit") or ()]
