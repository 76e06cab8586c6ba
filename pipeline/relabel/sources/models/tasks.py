"""First task of an encoding that a transformer model makes: load the model and record its properties."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from relabel.core.runtime import Advance
from relabel.sources.models.files import ModelFiles
from relabel.sources.shards import ShardTasks
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

MODEL = "model.json"
"""Properties of the loaded model. The file is written first, and left out of the finished artefact."""


class ModelTasks(ShardTasks):
    """Work whose first task loads a model, so that a faulty model is reported before any other work.

    A subclass sets `files` and implements `load_model`.
    """

    files: ModelFiles

    @abstractmethod
    def load_model(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Load the model and check it.

        Returns `properties`: facts of the manifest; `execution`: how the model runs on this machine: `backend`,
        `device` and `left_out`.
        """

    @override
    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        yield TaskGroup(f"model ({self.files.name})", "models", [Task(MODEL, 1)])

    @override
    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        if task.file != MODEL:
            return super().make_other(work, task, advance)
        text = json.dumps(self.load_model())
        return work.file(MODEL, lambda path: path.write_text(text, encoding="utf-8"))

    @override
    def finish(self, work: Work) -> None:
        super().finish(work)
        properties, execution = json.loads((work.folder / MODEL).read_text(encoding="utf-8"))
        work.runtime |= {"model": self.files.record(), **execution}
        work.facts |= {"model": self.files.name, "captions": len(self.rows), **properties}
        work.excluded.add(MODEL)
