"""Log of a run: lines of JSON, TensorBoard if it is installed, and messages for people."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "log.jsonl"


class Log:
    """Log that appends to `log.jsonl`. A resumed run first drops the lines after its checkpoint.

    Parameters
    ----------
    folder : Path or None
        None writes nothing, for all processes but the first.
    notify : callable
        Called with messages for people.
    size : int
        Bytes of the log at the checkpoint.
    step : int
        Step of the checkpoint.
    """

    def __init__(self, folder: Path | None, notify: Callable[[str], None], size: int = 0, step: int = 0) -> None:
        self._path = None if folder is None else folder / NAME
        self._notify = notify
        self._board: Any = None
        self._hook = threading.excepthook
        if self._path is None:
            return
        self._path.touch()
        # A run killed after a checkpoint has logged steps that it takes again.
        with self._path.open("r+b") as file:
            file.truncate(min(size, self._path.stat().st_size))
        try:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder), purge_step=step + 1 if step else None)
            threading.excepthook = _without_board
        except ImportError:
            pass  # optional: `pip install tensorboard`

    @property
    def size(self) -> int:
        """Current size of `log.jsonl` in bytes."""
        return 0 if self._path is None else self._path.stat().st_size

    def write(self, kind: str, step: int, values: dict[str, Any], message: str = "") -> None:
        """Write one line: its kind, its step and numbers by name."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)
        if message:
            self._notify(message)

    def note(self, text: str) -> None:
        """Send a message that is not part of the log."""
        if self._path is not None:
            self._notify(text)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            try:
                self._board.close()
            finally:
                threading.excepthook = self._hook


def _without_board(failure: threading.ExceptHookArgs) -> None:
    """Print the traceback of a thread, except of TensorBoard's on a full disk: the next write raises that error."""
    if not (type(failure.thread).__name__ == "_AsyncWriterThread" and isinstance(failure.exc_value, OSError)):
        threading.__excepthook__(failure)
