"""Draw what mean IoU costs on CamVid, with bands over seeds, for docs/results.md; run from the root of the checkout.

python -m tools.draw_camvid [FILE.svg]
"""

import sys
from pathlib import Path

from maqee.report.figures.drawing import style
from maqee.report.figures.table_curves import draw_curves
from maqee.report.finished_table import read_finished
from tools.draw_frontier import save

RESULT, PICTURE = Path("results", "tables", "camvid-vit-tiny.json"), Path("docs", "pictures", "camvid-frontier.svg")


def main(path: Path) -> None:
    """Write the picture: a figure of the table's report with a title of its own."""
    with style():
        figure = draw_curves(read_finished(RESULT)).figure
        assert figure is not None, "the table has curves"
        figure.axes[0].set_title("mIoU on 233 test images of CamVid, simulated")
        save(figure, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
