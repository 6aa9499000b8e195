"""A table that takes seconds."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import yaml

from maqee.io import read_json, to_json
from tests.helpers import FIXTURES

QUICK = {"max_swaps": 0, "bit_min": 4, "bit_max": 4, "act_min": 4, "act_max": 5}


def write_table(folder: Path, **values: object) -> Path:
    """Two rows on the digits, two seeds; other keys replace or join these."""
    table = {
        "name": "small",
        "backbone": "miniature",
        "models": {"mlp": str(FIXTURES / "digits")},
        "data": "digits",
        "seeds": 2,
        "recovered_seeds": 1,
        "compress": {"budget": {"max_bops": 1.35e7}, "search": QUICK, "options": {"samples": 40, "fit_images": 16}},
        "rows": {
            "rtn": {"method": "rtn", "exits": "mlp", "bits": "W4A4"},
            "maqee": {"method": "maqee", "exits": "mlp", "bits": "both", "quantizer": "rtn"},
        },
        **values,
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(table, sort_keys=False))
    return path


def without_environment(path: Path) -> str:
    """The bytes of a table that do not depend on where it was made."""
    values = read_json(path)
    del values["environment"]
    return to_json(values)


class Killer(threading.Thread):
    """Kills the first process that works in a folder of a search, as the system does when memory is short."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.root, self.killed, self.stop = root, 0, False

    def run(self) -> None:
        while not self.killed and not self.stop:
            for lock in self.root.glob("models/maqee-*/.lock"):
                words = lock.read_text().strip() if lock.exists() else ""
                if words.isdecimal() and int(words) != os.getpid():
                    os.kill(int(words), signal.SIGKILL)
                    self.killed = int(words)
                    return
            time.sleep(0.01)
