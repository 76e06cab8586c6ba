"""Files of a training run: checkpoints, and the log in lines of JSON, TensorBoard if it is installed, and messages."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from relabel_train.files import read_file
from relabel_train.reference.options import FitError

LAST, BEST, VOCABULARY, LOG = "last.pt", "best.pt", "vocabulary.json", "log.jsonl"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors, numbers, text and None in nested dicts, lists and tuples; the file is complete or not there.

    The sha256 of the archive of `torch.save` follows it. `torch.load` reads the file and ignores the sha256.
    """
    # One run at a time uses a folder, so that a killed one leaves at most this file.
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("w+b") as file:
            torch.save(state, file)
            file.seek(0)
            file.write(hashlib.file_digest(file, "sha256").digest())
            # The bytes must be on disk before the name is.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint with its tensors on the CPU; no code of the file runs."""
    try:
        contents = read_file(path, sys.maxsize)
        # torch compares no checksums, and those of the archive cover no attributes: an entry marked as a folder by a
        # flipped bit is read as a tensor of whatever the memory held.
        if hashlib.sha256(memoryview(contents)[:-32]).digest() != contents[-32:]:
            raise ValueError("its sha256 differs")
        state: dict[str, Any] = torch.load(io.BytesIO(contents), map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no checkpoint found. Make one with `relabel fit`.") from None
    except Exception as error:  # a damaged archive raises nearly anything
        reason = str(error).partition("\n")[0][:120]
        raise FitError(f"{path}: not a valid checkpoint ({reason}). Delete it and train again.") from error
    return state


class Log:
    """Log that appends to `log.jsonl`. A resumed run first drops the lines after its checkpoint.

    `folder`: None writes nothing, for all processes but the first. `notify`: called with messages for people. `size`:
    bytes of the log at the checkpoint. `step`: step of the checkpoint.
    """

    def __init__(self, folder: Path | None, notify: Callable[[str], None], size: int = 0, step: int = 0) -> None:
        self._path = None if folder is None else folder / LOG
        self._notify = notify
        self._board: Any = None
        if self._path is None:
            return
        self._path.touch()
        # A run killed after a checkpoint has logged steps that it takes again.
        with self._path.open("r+b") as file:
            file.truncate(min(size, self._path.stat().st_size))
        try:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder), purge_step=step + 1 if step else None)
        except ImportError:
            pass  # optional: `pip install tensorboard`

    @property
    def size(self) -> int:
        """Current size of `log.jsonl` in bytes."""
        return 0 if self._path is None else self._path.stat().st_size

    def write(self, kind: str, step: int, values: dict[str, Any], message: str = "") -> None:
        """Write one line: its kind, its step and numbers by name; null for a number that is not finite."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            # JSON has no NaN: float16's first steps overflow until their loss scale has fallen.
            finite = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in values.items()}
            file.write(json.dumps({"kind": kind, "step": step, **finite}, allow_nan=False) + "\n")
        if self._board is not None:
            for name, value in values.items():
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
            self._board.close()
