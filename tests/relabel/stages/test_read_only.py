"""Contract: every stage finds finished work in folders without write permission. Unfinished work ends with an error
that names the folder and the permission, and never advises to free space.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from relabel import datasets, stages
from relabel.config import load_config
from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel.stages.run import run
from relabel.stages.verify import verify


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def read_only_folder(
    all_artefacts: Path,
    public_folder: Path,
    unprivileged: Callable[[], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """Return a finished project in which this process may write nothing."""
    folder = shutil.copytree(all_artefacts, public_folder / "made")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    with unprivileged():
        with pytest.raises(PermissionError):
            (folder / "labels" / "new").touch()
        yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)


def project(*settings: str) -> Project:
    # Other parameters than those of the file, by options.
    runtime = Runtime(data=Path("data"), threads=1, replace=bool(settings))
    return Project(load_config(Path("params.yaml"), list(settings)), runtime)


def test_finished_work_is_found_and_new_work_names_the_folder(read_only_folder: Path) -> None:
    before = files(read_only_folder)
    one = project()
    assert run(one).problems == []  # ingest, tune, encode, judge, correlate, neighbours, export
    assert not stages.ingest(one).run()[1]
    for job in (
        stages.tune_cbow(one),
        stages.encode(one, "cider", "val"),
        stages.judge(one, "cbow"),
        stages.export_lookup(one, "cbow", "val"),
        stages.export_batches(one, "cider", "val", "batches"),
    ):
        assert not job.run()[1]
    assert datasets.fetch("eccv", Path("data"))
    assert verify([Path("labels"), Path("data")]).problems == []
    other = project("sources.cider.sigma=5")
    with pytest.raises(CheckError, match=r"labels/coco/encodings/val/\.work.*: Permission denied\. Check the path"):
        stages.encode(other, "cider", "val").run()
    assert files(read_only_folder) == before
