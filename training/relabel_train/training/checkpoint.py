"""Checkpoints: one file of arrays and JSON, written whole or not at all, no pickle, read by numpy alone.

The file is a zip of `.npy` members (as `numpy.savez` makes) and a member `state.json`, in which every tensor is
replaced by the number of its member.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relabel_train.training.errors import FitError

_STATE = "state.json"
_TENSOR, _PAIRS, _TUPLE = "__tensor__", "__pairs__", "__tuple__"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers, text and None.

    The file appears under its name when it is whole and on the disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    for left in path.parent.glob(f".{path.name}.*.part"):  # by a killed process: one run at a time has a folder
        left.unlink(missing_ok=True)
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
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote, tensors on the CPU.

    Raises
    ------
    FileNotFoundError
        If there is none.
    FitError
        If it is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            body = json.loads(archive.read(_STATE))

            def tensor(index: int) -> torch.Tensor:
                raw = io.BytesIO(archive.read(_member(index)))  # the zip's own checksum is looked at
                return torch.from_numpy(np.lib.format.read_array(raw, allow_pickle=False))

            found: dict[str, Any] = _unpacked(body, tensor)
            return found
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no checkpoint here. Make one with `relabel fit`.") from None
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as error:
        raise FitError(f"{path}: not a whole checkpoint ({error}). Delete it and train again.") from error


def _member(index: int) -> str:
    return f"{index:05d}.npy"


def _packed(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {_TENSOR: len(tensors) - 1}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("__") for key in value):
            return {key: _packed(v, tensors) for key, v in value.items()}
        return {_PAIRS: [[key, _packed(v, tensors)] for key, v in value.items()]}  # an optimizer counts parameters
    if isinstance(value, tuple):
        return {_TUPLE: [_packed(v, tensors) for v in value]}
    if isinstance(value, list):
        return [_packed(v, tensors) for v in value]
    return value


def _unpacked(value: Any, tensor: Any) -> Any:
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
