"""Files of a training run: checkpoints and the log.

A checkpoint is one file of arrays and JSON, replaced atomically, without pickle, readable by numpy alone: a zip of
`.npy` members, as of `numpy.savez`, and a member `state.json`, in which the number of its member replaces every tensor.

The log has lines of JSON, TensorBoard if it is installed, and messages for people.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import threading
import zipfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relabel_train.npy_file import read_header
from relabel_train.reference.options import FitError

_STATE = "state.json"
_ENCRYPTED = 1  # bit of a zip member's flags
_DAMAGE = (
    zipfile.BadZipFile,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,  # RecursionError and NotImplementedError among them
    TypeError,
    ValueError,
    struct.error,
)
"""Errors of reading a damaged archive, JSON or array."""
_TENSOR, _PAIRS, _TUPLE = "__tensor__", "__pairs__", "__tuple__"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers, text and None.

    The file appears under its name once it is complete and on disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    # Left by a killed process: one run at a time uses a folder.
    for stale in path.parent.glob(f".{path.name}.*.part"):
        stale.unlink(missing_ok=True)
    tensors: list[torch.Tensor] = []
    body = json.dumps(_packed(state, tensors))
    try:
        with temporary.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for i, tensor in enumerate(tensors):
                    with archive.open(_member(i), "w", force_zip64=True) as member:
                        array = tensor.detach().cpu().contiguous().numpy()
                        np.lib.format.write_array(member, array, allow_pickle=False)
                archive.writestr(_STATE, body)
            # The bytes must be on disk before the name is.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint with its tensors on the CPU."""
    try:
        with zipfile.ZipFile(path) as archive:
            tensors = sum(name != _STATE for name in archive.namelist())
            body = json.loads(_content(archive, _STATE).decode())

            def tensor(index: int) -> torch.Tensor:
                if not 0 <= index < tensors:
                    raise ValueError(f"there is no tensor {index}")
                return torch.from_numpy(_array(_content(archive, _member(index))))

            state = _unpacked(body, tensor)
            if not isinstance(state, dict):
                raise ValueError("its state is no dictionary")
            return state
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no checkpoint found. Make one with `relabel fit`.") from None
    except _DAMAGE as error:
        raise FitError(f"{path}: not a valid checkpoint ({error!s:.120}). Delete it and train again.") from error


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a stored, unencrypted member; the zip's checksum is verified."""
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
        raise ValueError(f"member {name} is compressed or encrypted")
    return archive.read(member)


def _array(raw: bytes) -> NDArray[Any]:
    """Read a `.npy` member. Its header cannot request more memory than the member has bytes."""
    header = read_header(io.BytesIO(raw))
    dtype = np.dtype(header.dtype)
    if dtype.hasobject or prod(header.shape) * dtype.itemsize != len(raw) - header.start:
        raise ValueError("a tensor is not as long as its header says")
    return np.frombuffer(raw, dtype, offset=header.start).reshape(header.shape).copy()


def _member(index: int) -> str:
    """Return the name of a tensor's member."""
    return f"{index:05d}.npy"


def _packed(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a value as JSON stores it, and append its tensors to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {_TENSOR: len(tensors) - 1}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("__") for key in value):
            return {key: _packed(v, tensors) for key, v in value.items()}
        return {_PAIRS: [[key, _packed(v, tensors)] for key, v in value.items()]}  # an optimizer numbers its parameters
    if isinstance(value, tuple):
        return {_TUPLE: [_packed(v, tensors) for v in value]}
    if isinstance(value, list):
        return [_packed(v, tensors) for v in value]
    return value


def _unpacked(value: Any, tensor: Any) -> Any:
    """Return the value that `_packed` stored; `tensor` reads a tensor by its number."""
    if isinstance(value, list):
        return [_unpacked(v, tensor) for v in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensor(value[_TENSOR])
    if _PAIRS in value:
        return {key: _unpacked(v, tensor) for key, v in value[_PAIRS]}
    if _TUPLE in value:
        return tuple(_unpacked(v, tensor) for v in value[_TUPLE])
    return {key: _unpacked(v, tensor) for key, v in value.items()}


NAME = "log.jsonl"


class Log:
    """Log that appends to `log.jsonl`. A resumed run first drops the lines after its checkpoint.

    `folder`: None writes nothing, for all processes but the first. `notify`: called with messages for people. `size`:
    bytes of the log at the checkpoint. `step`: step of the checkpoint.
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
        """Write one line: its kind, its step and numbers by name; null for a number that is not finite."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            # JSON has no NaN: float16's first steps overflow until their loss scale has fallen.
            finite = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in values.items()}
            file.write(json.dumps({"kind": kind, "step": step, **finite}, allow_nan=False) + "\n")
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
