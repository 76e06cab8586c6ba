"""Contract: of the artefact of other parameters, an edited parameter file takes the place, and options do not unless
`--replace` is given; changed inputs always do. A reader opens an artefact of today's parameters and inputs only; what
is absent today is not compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import Progress, Runtime
from relabel.stages import Project
from relabel.stages.job import Job, label_values
from relabel.store.artefact import Recipe
from relabel.store.workdir import Work

PARAMS = "sources: {{cider: {{source: cider, sigma: {sigma}}}}}"


class Notes(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


@dataclass
class Folder:
    """Jobs of one artefact, in a folder with a parameter file."""

    path: Path
    notes: Notes = field(default_factory=Notes)

    def job(self, *settings: str, corpus: Any = "abc", replace: bool = False, label: str = "cider") -> Job:
        config = load_config(self.path / "params.yaml", list(settings))
        runtime = Runtime(data=self.path, progress=self.notes, replace=replace)
        made = {"sigma": getattr(config.params(label), "sigma", None), "sizes": (3, 4)}

        def fill(work: Work) -> None:
            work.file("a.txt", lambda path: path.write_text(str(made["sigma"])))

        recipe = Recipe("encoding", label, lambda: made, {"corpus": corpus}, fill)
        out = self.path / "labels" / label
        return Job(Project(config, runtime, self.path), out, recipe, "`make it`", lambda c: label_values(c, label))

    def params(self, sigma: float) -> None:
        (self.path / "params.yaml").write_text(PARAMS.format(sigma=sigma))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.params(6.0)
    assert folder.job().run()[1]
    return folder


SET = "sources.cider.sigma=3.0"
CHANGED = "sources.cider.sigma (6.0 there, 3.0 here)"


def test_an_edited_file_builds_again_and_says_what_changed(folder: Folder) -> None:
    folder.params(3.0)
    assert folder.job().run()[1]
    assert [line for line in folder.notes.lines if CHANGED in line] == folder.notes.lines[1:2]
    assert not folder.job().run()[1]


def test_options_are_refused_with_what_differs_unless_replace_is_given(folder: Folder) -> None:
    with pytest.raises(UsageError) as caught:
        folder.job(SET).run()
    assert CHANGED in caught.value.problem
    assert "--replace" in str(caught.value.todo)
    assert (folder.path / "labels/cider/a.txt").read_text() == "6.0"
    assert folder.job(SET, replace=True).run()[1]
    # The file describes the artefact: a command without options makes it again.
    assert folder.job().run()[1]
    assert not folder.job(replace=True).run()[1]


def test_options_that_equal_the_file_are_no_other_parameters(folder: Folder) -> None:
    folder.params(3.0)
    assert folder.job(SET).run()[1]


def test_a_label_that_the_file_lacks_follows_its_settings(folder: Folder) -> None:
    for sigma in (3, 4):
        assert folder.job(f"sources.other={{source: cider, sigma: {sigma}}}", label="other").run()[1]


def test_other_inputs_build_again_also_with_options(folder: Folder) -> None:
    assert folder.job(corpus="abd").run()[1]
    folder.job(SET, replace=True).run()
    assert folder.job(SET, corpus="abe").run()[1]


def test_a_reader_names_what_differs(folder: Folder) -> None:
    assert folder.job().open().config == {"sigma": 6.0, "sizes": [3, 4]}
    with pytest.raises(CheckError, match=r"sigma \(6\.0 there, 3\.0 here\).*Run `make it`"):
        folder.job(SET).open()
    with pytest.raises(CheckError, match="another corpus"):
        folder.job(corpus="abd").open()
    with pytest.raises(MissingError, match="no encoding other"):
        folder.job("sources.other={source: cider}", label="other").open()


def test_an_absent_input_is_taken_as_it_is_and_named_once(folder: Folder) -> None:
    def absent() -> str:
        raise MissingError("no corpus here")

    for _ in range(2):
        job = folder.job(corpus=absent)
        assert [job.open().inputs, job.identity()] == [{"corpus": "abc"}, folder.job().identity()]
        with pytest.raises(CheckError, match="sigma"):
            folder.job(SET, corpus=absent).open()
        with pytest.raises(MissingError):
            job.run()
    assert len([line for line in folder.notes.lines if "no corpus here" in line]) >= 1


def test_the_state_of_work(folder: Folder) -> None:
    assert folder.job().state() == "done"
    assert folder.job(SET).state() == "to do"
    job = folder.job(SET, replace=True)

    def stop(_: Work) -> None:
        raise KeyboardInterrupt

    object.__setattr__(job, "recipe", Recipe("encoding", "cider", job.recipe.config, job.recipe.inputs, stop))
    with pytest.raises(KeyboardInterrupt):
        job.run()
    assert folder.job(SET).state() == "partly"
