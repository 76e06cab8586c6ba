"""A stage of two steps that worker processes import by name; a task of the second one can wait, fail or end them."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from relabel.core.errors import CheckError
from relabel.stages import Job, Session
from relabel.stages.job import make_steps
from relabel.store.artefact import Recipe
from relabel.store.workdir import Step, Steps, Task, Work
from relabel_train.files import sha256_file

FIRST = "first.bin"
PARTS = [f"part-{i}.bin" for i in range(5)]


def demo(session: Session, notes: Path, how: str = "plain") -> Job:
    """Prepare files that begin with the content of `input` of the folder `notes`.

    `how`: part 2 "waits" until the file `go` exists, "fails" or "dies"; "edits" changes the input before any task.
    """

    def steps(work: Work) -> Steps:
        with (notes / "models").open("a") as log:
            log.write(f"{os.getpid()}\n")
        yield Step("first", "files", [Task(FIRST, lambda path: path.write_bytes((notes / "input").read_bytes()))])
        content = (work.folder / FIRST).read_bytes()
        tasks = [Task(name, partial(write, content, i), i + 1) for i, name in enumerate(PARTS)]
        yield Step("second", "rows", tasks, last=True)
        work.excluded.add(FIRST)

    def write(content: bytes, i: int, path: Path) -> None:
        if i == 2 and how == "waits":
            (notes / "here.part").write_text(str(os.getpid()))
            (notes / "here.part").rename(notes / "here")
            while not (notes / "go").exists():
                time.sleep(0.02)
        if i == 2 and how == "fails":
            raise CheckError("an odd line", where="part 2", hint="Look at it.")
        if i == 2 and how == "dies":
            os._exit(1)
        path.write_bytes(content * i)

    def fill(work: Work) -> None:
        if how == "edits":
            (notes / "input").write_bytes(b"other")
        make_steps(job, work, demo, notes, how)

    recipe = Recipe("demo", "demo", lambda: {"input": sha256_file(notes / "input")}, {}, fill)
    job = Job(session, session.labels / "demo", recipe, "demo", steps=steps)
    return job
