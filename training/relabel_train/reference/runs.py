"""Shared parts of training and evaluation: devices, models by name, checkpoints."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from relabel_train.files import read_file
from relabel_train.reference.models.base import Model, Vocabulary
from relabel_train.reference.models.sgraf import SAF, SGR
from relabel_train.reference.models.vse_inf import VSEInfinity
from relabel_train.reference.models.vsepp import VSEPP
from relabel_train.reference.options import Choice, FitError, Parameters, choose

LAST, BEST = "last.pt", "best.pt"
_KINDS = {"vsepp": VSEPP, "vse_inf": VSEInfinity, "sgr": SGR, "saf": SAF}
MODELS = {name: Parameters.of(kind) for name, kind in _KINDS.items()}
"""Parameters of each model. SGRAF is the average of an sgr and a saf run: `relabel eval --average`."""


def make_model(choice: Choice, width: int, vocabulary: Vocabulary) -> Model:
    """Make a model for images of vectors of a width, and captions of a vocabulary."""
    model: Model = choose("model", MODELS, choice).make(width, vocabulary)
    return model


def find_device(name: str) -> torch.device:
    """Return the device "cpu" or "cuda"; "auto" is a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise FitError("torch sees no CUDA device; use --device cpu, or install a torch built for CUDA")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors, numbers, text and None in nested dicts, lists and tuples; the file is complete or not there.

    The sha256 of the archive of `torch.save` follows it. `torch.load` reads the file and ignores the sha256.
    """
    archive = io.BytesIO()
    torch.save(state, archive)
    # One run at a time uses a folder, so a killed one leaves at most this file.
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(archive.getbuffer())
            file.write(hashlib.sha256(archive.getbuffer()).digest())
            # The bytes must be on disk before the name is.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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


def load_model(folder: Path) -> Model:
    """Load the best model of a run in evaluation mode."""
    state = load_checkpoint(folder / BEST)
    model = make_model(state["identity"]["model"], state["width"], Vocabulary(state["words"]))
    model.normalize = state["normalize"]
    model.load_state_dict(state["model"])
    return model.eval()


def load_last(folder: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """Load the state to resume a run from, None if the folder is empty; raise if it holds another run."""
    path = folder / LAST
    if not path.is_file():
        if others := sorted(file.name for file in folder.iterdir() if not file.name.startswith(".")):
            raise FitError(f"{folder / others[0]}: not part of a run, because {LAST} is missing. Pass another --out.")
        return None
    state = load_checkpoint(path)
    stored = state["identity"]
    if changed := sorted(name for name in {*stored, *identity} if stored.get(name) != identity.get(name)):
        changes = "; ".join(f"{n} was {stored.get(n)}, is {identity.get(n)}" for n in changed[:3])
        raise FitError(f"{path}: another run ({changes}). Give another --out, or delete the folder.")
    return state
