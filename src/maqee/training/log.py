"""The training log: one JSON object a line, and TensorBoard for those who like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maqee.disk import explain_write_errors
from maqee.errors import MaqeeError
from maqee.io import write_text


class TrainLog:
    """Appends to `log.jsonl`. On a resumed run, lines of steps that will be done again are removed first."""

    def __init__(self, folder: Path, stage: str, first_step: int, tensorboard: bool = False) -> None:
        self.path = folder / "log.jsonl"
        self.stage = stage
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            kept = [line for line in self.path.read_text().splitlines() if not self._repeats(line, first_step)]
            write_text(self.path, "".join(f"{line}\n" for line in kept))
        self._board = _open_board(folder) if tensorboard else None

    def _repeats(self, line: str, first_step: int) -> bool:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            return True  # the line a kill cut short
        return bool(entry.get("stage") == self.stage and entry.get("step", -1) >= first_step)

    def write(self, step: int, **values: Any) -> None:
        """Add a line."""
        with explain_write_errors(self.path):
            with self.path.open("a") as file:
                file.write(json.dumps({"stage": self.stage, "step": step, **values}, sort_keys=True) + "\n")
            if self._board is not None:
                for name, value in values.items():
                    if isinstance(value, int | float):
                        self._board.add_scalar(f"{self.stage}/{name}", value, step)


def _open_board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MaqeeError("tensorboard: true needs the package tensorboard: pip install 'maqee[train]'.") from error
    with explain_write_errors(folder / "tensorboard"):
        return SummaryWriter(str(folder / "tensorboard"))
