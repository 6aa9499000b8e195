"""Draw the README's picture of accuracy against executed speed; run from the root of the checkout.

python -m tools.draw_throughput [FILE.svg]
"""

import sys
from pathlib import Path

from maqee.io import read_json
from maqee.report.plan_picture import save_plan_picture

RESULT, PICTURE = Path("results", "throughput", "vit-small.json"), Path("docs", "pictures", "throughput.svg")
NAMES = {
    "o/vit-small@torch": "bfloat16",
    "o/small-uniform-exec@triton": "uniform W4A4",
    "o/small-exec@triton": "maqee",
    "o/small-time@triton": "maqee for time",
}


def main(path: Path) -> None:
    """Write the picture, with words in place of the names of folders."""
    result = read_json(RESULT)
    for row in result["rows"]:
        model, _, stop = row["name"].partition(":")
        row["name"] = f"{NAMES[model]}{f':{stop}' if stop else ''}"
    save_plan_picture(result, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
