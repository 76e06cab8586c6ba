"""First step of an encoding that a transformer model makes: load the model and record its properties.

A faulty model is reported before any other work.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from relabel.sources.models.files import ModelFiles
from relabel.store.workdir import Step, Task, Work

MODEL = "model.json"
"""Properties of the loaded model. The file is left out of the finished artefact."""


def model_step(files: ModelFiles, load: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> Step:
    """Return the step that loads a model and checks it.

    `load`: returns `properties`: facts of the manifest; `execution`: how the model runs on this machine: `backend`,
    `device` and `left_out`.
    """
    task = Task(MODEL, lambda path: path.write_text(json.dumps(load()), encoding="utf-8"))
    return Step(f"model ({files.name})", "models", [task])


def record_model(files: ModelFiles, captions: int, work: Work) -> None:
    """Add the properties of the model to the facts, and what ran it to the runtime."""
    properties, execution = json.loads((work.folder / MODEL).read_text(encoding="utf-8"))
    work.runtime |= {"model": files.record(), **execution}
    work.facts |= {"model": files.name, "captions": captions, **properties}
    work.excluded.add(MODEL)


def save_model(work: Work, save: Callable[[Path], object], prefix: str = "") -> None:
    """Let a library save a model to a temporary folder, and add its files, named with a prefix, one by one."""
    with tempfile.TemporaryDirectory(prefix=".", dir=work.folder) as name:
        folder = Path(name)
        save(folder)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            work.file(prefix + file.relative_to(folder).as_posix(), partial(shutil.copyfile, file))
