"""What a run says: lines of JSON, TensorBoard where it is installed, and a line for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "log.jsonl"


class Log:
    """Appends to `log.jsonl`; of a run that goes on, lines after its checkpoint are dropped first.

    Parameters
    ----------
    folder : Path or None
        None writes nothing: every process but the first.
    tell : callable
        Gets a line for people.
    size : int
        Bytes of the log when the checkpoint was written (see `size`).
    step : int
        The checkpoint's step.
    """

    def __init__(self, folder: Path | None, tell: Callable[[str], None], size: int = 0, step: int = 0) -> None:
        self._path = None if folder is None else folder / NAME
        self._tell = tell
        self._board: Any = None
        if self._path is None:
            return
        self._path.touch()
        with self._path.open("r+b") as file:
            file.truncate(min(size, self._path.stat().st_size))
        try:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder), purge_step=step + 1 if step else None)
        except ImportError:
            pass  # `pip install tensorboard` brings it

    @property
    def size(self) -> int:
        """Bytes so far."""
        return 0 if self._path is None else self._path.stat().st_size

    def write(self, kind: str, step: int, values: dict[str, Any], told: str = "") -> None:
        """Write one line: what kind, at which step, numbers by name."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)
        if told:
            self._tell(told)

    def note(self, text: str) -> None:
        """Tell people a line that is no result."""
        if self._path is not None:
            self._tell(text)

    def close(self) -> None:
        """Let go of TensorBoard's file."""
        if self._board is not None:
            self._board.close()
