"""Contract: the files have the same bytes for every kind of worker. A worker loads its inputs once, and the tasks of
a lost worker are done by others. Errors of tasks reach the user unchanged. A worker that would compute other values,
or sees other files, is refused. No process remains.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from relabel.store.workers.dask_run import gpus, worker_budget
from tests.relabel.store.workers.watching import once_there

from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError, PartialError, RelabelError
from relabel.core.runtime import Runtime
from relabel.core.worker_pool import LineError
from relabel.stages import Project
from relabel.store.manifest import Manifest
from relabel.store.workers import dask_run, remote_job

pytest.importorskip("distributed")
pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Put the demo stage where other processes import it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import demo_stage

    return demo_stage


class Seen:
    """Progress that records its tasks."""

    def __init__(self) -> None:
        self.bars: list[tuple[str, int, str, list[int]]] = []

    @contextmanager
    def bar(self, title: str, total: int, unit: str) -> Iterator[Any]:
        done: list[int] = []
        self.bars.append((title, total, unit, done))

        class One:
            def advance(self, n: int = 1) -> None:
                done.append(n)

        yield One()

    def note(self, text: str) -> None: ...


def project(folder: Path, **runtime: Any) -> Project:
    folder.mkdir(exist_ok=True)
    return Project(load_config(None), Runtime(data=folder, device="cpu", threads=2, **runtime), folder)


def alone(stage: ModuleType, tmp_path: Path) -> Manifest:
    manifest, _ = stage.demo(project(tmp_path / "notes0"), str(tmp_path / "alone")).run()
    assert isinstance(manifest, Manifest)
    return manifest


@contextmanager
def cluster(workers: int = 1) -> Iterator[Any]:
    """Start a scheduler with an address, whose workers are threads of this process."""
    from distributed import LocalCluster

    options = {
        "processes": False,
        "protocol": "tcp://",
        "dashboard_address": "127.0.0.1:0",
        "silence_logs": logging.CRITICAL,
    }
    with LocalCluster(n_workers=workers, threads_per_worker=2, **options) as dask_cluster:
        yield dask_cluster


def test_two_local_workers_one_of_them_killed(stage: ModuleType, tmp_path: Path) -> None:
    expected = alone(stage, tmp_path)
    notes, seen = tmp_path / "notes", Seen()

    def kill() -> None:
        os.kill(int((notes / "here").read_text()), signal.SIGKILL)
        (notes / "go").touch()

    with_workers = project(notes, workers=2, progress=seen)
    with once_there(notes / "here", kill):
        manifest, _ = stage.demo(with_workers, str(tmp_path / "out"), "waits").run()
    assert (notes / "go").exists()
    assert manifest.files == expected.files
    assert manifest.facts == expected.facts
    assert [(title, total, unit) for title, total, unit, _ in seen.bars] == [
        ("first, 2 workers", 1, "files"),
        ("second, 2 workers", 36, "rows"),
    ]
    assert [sum(done) for *_, done in seen.bars] == [1, 36]
    assert Counter(seen.bars[1][3]) == Counter(range(9))  # finished tasks, then each task as it ends
    models = Counter((notes / "models").read_text().split())
    assert 2 <= len(models) <= 3
    assert set(models.values()) == {1}
    assert str(os.getpid()) not in models
    assert not [p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())]
    assert not list((tmp_path / "out").glob(".*"))


def test_any_cluster_by_its_address(stage: ModuleType, tmp_path: Path) -> None:
    expected, notes = alone(stage, tmp_path), tmp_path / "notes"
    with cluster(2) as dask_cluster:
        with_workers = project(notes, scheduler=dask_cluster.scheduler_address)
        manifest, _ = stage.demo(with_workers, str(tmp_path / "out")).run()
        assert manifest.files == expected.files
        assert len((notes / "models").read_text().split()) == 1  # both workers are threads of this process


def test_errors_of_tasks_reach_the_user_unchanged(stage: ModuleType, tmp_path: Path) -> None:
    with cluster() as dask_cluster, pytest.raises(LineError, match="nobody takes") as caught:
        stage.demo(
            project(tmp_path / "notes", scheduler=dask_cluster.scheduler_address), str(tmp_path / "out"), "fails"
        ).run()
    assert (caught.value.index, caught.value.todo) == (5, "Look at it.")
    manifest, _ = stage.demo(project(tmp_path / "notes"), str(tmp_path / "out")).run()
    assert manifest.files == alone(stage, tmp_path).files


@pytest.mark.parametrize(
    "error",
    [LineError("a", 3, None), PartialError("a", where="b", todo="c"), CheckError("x")],
)
def test_errors_are_pickled_completely(error: RelabelError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


def test_a_worker_with_other_values_is_refused(
    stage: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster() as dask_cluster:
        with_workers = project(tmp_path / "notes", scheduler=dask_cluster.scheduler_address)
        with pytest.raises(CheckError, match=r"worker tcp://.*expected same True, found False"):
            stage.other_here(with_workers, str(tmp_path / "out"), os.getpid()).run()
        versions = remote_job.versions()
        monkeypatch.setattr(remote_job.RemoteJob, "for_worker", _older(remote_job.RemoteJob.for_worker))
        with pytest.raises(CheckError, match=rf"expected relabel 0\.0, found {versions}"):
            stage.demo(with_workers, str(tmp_path / "out")).run()


def test_a_worker_that_sees_another_folder_is_refused(
    stage: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere_mounted(self: Any, *arguments: Any, plain: Any = remote_job.RemoteJob.for_worker) -> Any:
        sent = plain(self, *arguments)
        (tmp_path / "mounted").mkdir(exist_ok=True)
        return remote_job.replace(sent, folder=tmp_path / "mounted")

    monkeypatch.setattr(remote_job.RemoteJob, "for_worker", elsewhere_mounted)
    with cluster() as dask_cluster, pytest.raises(MissingError, match="does not see the work folder"):
        stage.demo(project(tmp_path / "notes", scheduler=dask_cluster.scheduler_address), str(tmp_path / "out")).run()
    assert not list((tmp_path / "mounted").iterdir())


def test_no_scheduler_no_worker_and_all_workers_lost(
    stage: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_run, "PATIENCE", 0.3)
    monkeypatch.setattr("relabel.store.workers.dask_run._TIMEOUT", 0.5)
    notes = tmp_path / "notes"
    with pytest.raises(MissingError, match="no Dask scheduler answers"):
        stage.demo(project(notes, scheduler="tcp://127.0.0.1:1"), str(tmp_path / "out")).run()
    with cluster(0) as dask_cluster:
        with_workers = project(notes, scheduler=dask_cluster.scheduler_address)
        with pytest.raises(MissingError, match="no worker came"):
            stage.demo(with_workers, str(tmp_path / "out")).run()
        dask_cluster.scale(1)
        dask_cluster.sync(dask_cluster._correct_state)

        def lose() -> None:
            (address,) = dask_cluster.scheduler.workers
            dask_cluster.sync(dask_cluster.scheduler.remove_worker, address, stimulus_id="test")

        with once_there(notes / "here", lose), pytest.raises(PartialError, match="all workers are lost"):
            stage.demo(with_workers, str(tmp_path / "out"), "waits").run()
        (notes / "go").touch()


@pytest.mark.slow
def test_a_task_that_ends_every_worker_is_named(stage: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(PartialError, match=r"part-00002-of-00008\.parquet ended the 4 workers"):
        stage.demo(project(tmp_path / "notes", workers=1), str(tmp_path / "out"), "deadly").run()


def test_without_dask_the_error_names_the_extra(
    stage: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingError, match="pip install"):
        stage.demo(project(tmp_path / "notes", workers=2), str(tmp_path / "out")).run()


def test_local_workers_share_threads_and_memory() -> None:
    assert worker_budget(Runtime(threads=8, memory=4000, workers=3)) == (2, 1333)
    assert worker_budget(Runtime(threads=1, memory=4000, workers=3)) == (1, 1333)
    assert worker_budget(Runtime(threads=8, memory=4000, scheduler="tcp://x:1")) == (0, 4000)


def test_gpus_are_the_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for visible, expected in (("2,GPU-5a", ["2", "GPU-5a"]), ("", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpus() == expected


def test_sent_projects_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    for name in ("v.zip", "stop.txt", "x.npy"):
        Path(name).touch()
    named = ("a: {source: sbert, model: model}", "b: {source: wmd, vectors: 'v.zip:m.txt', stop_words: stop.txt}")
    other = ("c: {source: wmd}", "d: {source: vectors, images: x.npy}", "e: {source: fuse}")
    sources = f"sources={{{', '.join((*named, *other))}}}"
    local = Project(load_config(None, [sources]), Runtime(data=Path("data"), progress=Seen()), Path("labels"))
    artefact = remote_job.Spec("demo", "demo", {}, {})
    sent = remote_job.RemoteJob(local, _older, (), artefact, Path("work")).for_worker("t", 1, 5)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    config = pickle.loads(pickle.dumps(sent)).project.config
    params: dict[str, Any] = {label: config.source(label).params for label in config.sources}
    assert params["a"].model == str(tmp_path / "model")
    assert (params["b"].vectors, params["b"].stop_words) == (str(tmp_path / "v.zip:m.txt"), str(tmp_path / "stop.txt"))
    assert (params["c"].vectors, params["c"].stop_words) == (str(tmp_path / "data/word2vec/coco"), "english")
    assert (params["d"].captions, params["d"].images) == (None, str(tmp_path / "x.npy"))
    assert params["e"].model == str(tmp_path / "data/fuse")
    assert sent.folder == tmp_path / "work"
    assert sent.project.labels == tmp_path / "labels"
    assert sent.project.runtime == Runtime(data=tmp_path / "data", threads=1, memory=5)
    assert len(pickle.dumps(sent)) < 10_000


def _older(plain: Any) -> Any:
    return lambda self, *arguments: remote_job.replace(plain(self, *arguments), versions="relabel 0.0")
