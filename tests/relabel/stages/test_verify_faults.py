"""Contract: `verify` names every fault and continues: unreadable folders, pipes and devices, deleted
manifests and inputs. An intact artefact that was made from earlier versions of its inputs is stale, which is no fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from relabel.core.errors import MissingError
from relabel.core.layout import Layout
from relabel.stages.verify import Findings, verify
from relabel.store.artefact import build
from relabel.store.manifest import MANIFEST, Spec
from relabel.store.workdir import Work

pytestmark = pytest.mark.timeout(60)


def make(folder: Path, kind: str, name: str, inputs: dict[str, str], facts: dict[str, str] = {}, size: int = 1) -> str:  # noqa: B006
    """Build an artefact of one file; return its identity."""

    def fill(work: Work) -> None:
        work.file("part-00000-of-00001.parquet", lambda path: path.write_text(str(folder)) and None)
        work.facts |= facts

    return build(folder, Spec(kind, name, {"size": size}, inputs), fill)[0].identity


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Return one artefact of most kinds, each made from the ones before it."""
    return lay(tmp_path / "labels")


def lay(labels: Path) -> Path:
    layout = Layout(labels, "mine")
    make(layout.corpus, "corpus", "mine", {}, {"digest": "abc"})
    corpus = {"corpus": "abc"}
    cider = make(layout.encoding("test", "cider"), "encoding", "cider", corpus, {"label": "cider", "split": "test"})
    cbow = make(layout.encoding("all", "cbow"), "encoding", "cbow", corpus, {"label": "cbow", "split": "all"}, size=2)
    parts = corpus | {"encoding cider": cider}
    make(layout.encoding("test", "fuse"), "encoding", "fuse", parts, {"label": "fuse", "split": "test"})
    identities = corpus | {"encoding": cider}
    near = make(layout.neighbours("test", "captions", "cider"), "neighbours", "cider", identities, {"split": "test"})
    make(layout.lookup("test", "cider"), "lookup", "cider", identities | {"neighbours": near}, {"split": "test"})
    judged = make(
        layout.judgement("test", "cider"), "judgement", "cider", identities | {"cxc sts": "x"}, {"label": "cider"}
    )
    make(layout.report("test"), "report", "test", {"cxc/cider": judged})
    facts = {"label": "cbow", "split": "test", "neighbours": "cider"}
    make(layout.plan("test", "p"), "plan", "p", corpus | {"encoding": cbow, "neighbours": near}, facts)
    assert check(labels) == Findings(9, 0, 18, findings_bytes(labels))
    return labels


def findings_bytes(labels: Path) -> int:
    return sum(p.stat().st_size for p in labels.rglob("*") if p.is_file() and p.parent.name != ".work")


def check(*paths: Path) -> Findings:
    return verify(paths, paths[0].parent / "data")


def faults(labels: Path) -> list[tuple[str, str]]:
    return [(p.fault, Path(p.file).relative_to(labels).as_posix()) for p in check(labels).problems]


SHARD = "part-00000-of-00001.parquet"
LOOKUP = "mine/exports/test/lookup/cider"
"""The last artefact that is walked but one: it is reached after a fault in another."""


def spoil(labels: Path) -> tuple[str, str]:
    """Damage a file that is read late; return the fault that must be reported besides others."""
    (labels / LOOKUP / SHARD).write_text("x")
    return ("damaged", f"{LOOKUP}/{SHARD}")


def test_links_in_circles_end(labels: Path) -> None:
    for name in ("a", "b"):
        (labels / name).symlink_to(".")
    (labels / "mine" / "up").symlink_to(labels)
    (labels / "mine" / "self").symlink_to("self")
    damaged = spoil(labels)
    assert faults(labels) == [damaged]
    assert check(labels).artefacts == 9


def test_a_dataset_on_another_disk_is_verified_through_its_link(labels: Path) -> None:
    (labels / "mine").rename(labels.parent / "elsewhere")
    (labels / "mine").symlink_to(labels.parent / "elsewhere")
    assert faults(labels) == []
    assert check(labels).artefacts == 9
    damaged = spoil(labels)
    assert faults(labels) == [damaged]
    shutil.rmtree(labels / "mine/encodings/test/cider")
    assert ("missing", "mine/encodings/test/cider") in faults(labels)


def test_unreadable_files_are_named(
    public_folder: Path, unprivileged: Callable[[], AbstractContextManager[None]]
) -> None:
    labels = lay(public_folder / "labels")
    damaged = spoil(labels)
    encodings = labels / "mine/encodings"
    (encodings / "test/fuse").chmod(0)
    (encodings / "all/cbow").chmod(0o444)
    (encodings / "test/cider" / SHARD).chmod(0)
    (labels / "mine/judgements/test/cider" / MANIFEST).chmod(0)
    with unprivileged():
        fault_files = faults(labels)
    for path in (encodings / "test/fuse", encodings / "all/cbow"):
        path.chmod(0o755)
    unreadable = [f"mine/encodings/all/cbow/{MANIFEST}", "mine/encodings/test/fuse"]
    unreadable += [f"mine/encodings/test/cider/{SHARD}", f"mine/judgements/test/cider/{MANIFEST}"]
    assert sorted(fault_files) == sorted([damaged, *(("unreadable", name) for name in unreadable)])


def test_an_invalid_path_is_an_error(tmp_path: Path, labels: Path) -> None:
    shard = labels / LOOKUP / SHARD
    for path in (tmp_path / ("x" * 300), tmp_path / "none", shard, shard / "below"):
        with pytest.raises(MissingError, match="no such folder"):
            check(path)


def test_pipes_devices_and_broken_links_are_named_and_never_opened(labels: Path) -> None:
    layout = Layout(labels, "mine")
    expected = []
    for folder, replace in (
        (layout.encoding("test", "fuse"), os.mkfifo),
        (layout.judgement("test", "cider"), lambda path: path.symlink_to("/dev/zero")),
        (layout.neighbours("test", "captions", "cider"), lambda path: path.mkdir()),
    ):
        (folder / SHARD).unlink()
        replace(folder / SHARD)
        expected.append(("damaged", (folder / SHARD).relative_to(labels).as_posix()))
    (layout.corpus / SHARD).unlink()
    (layout.corpus / SHARD).symlink_to("nowhere")
    os.mkfifo(layout.plan("test", "p") / "pipe")
    (layout.encoding("all", "cbow") / MANIFEST).unlink()
    os.mkfifo(layout.encoding("all", "cbow") / MANIFEST)
    expected += [("missing", f"mine/corpus/{SHARD}"), ("stray", "mine/exports/test/plan/p/pipe")]
    expected += [("damaged", f"mine/encodings/all/cbow/{MANIFEST}")]
    assert sorted(faults(labels)) == sorted(expected)


def test_a_model_without_its_manifest_is_named_among_the_users_files(tmp_path: Path, labels: Path) -> None:
    data = tmp_path / "data"
    for name in ("word2vec/word2vec.coco-train.100d.txt", "sbert-cxc/training.json", "own/GoogleNews.bin"):
        (data / name).parent.mkdir(parents=True)
        (data / name).write_text("x")
    fault_files = [(p.fault, Path(p.file).relative_to(data).as_posix()) for p in check(labels, data).problems]
    assert fault_files == [("missing", f"sbert-cxc/{MANIFEST}"), ("missing", f"word2vec/{MANIFEST}")]


def test_a_training_is_no_artefact(labels: Path) -> None:
    run = labels / "mine/runs/triplet-0"
    (run / "events").mkdir(parents=True)
    for name in ("last.npz", "best.npz", "log.jsonl", "events/x"):
        (run / name).write_text("x")
    assert faults(labels) == []


@pytest.mark.parametrize(
    ("folder", "referrers"),
    [
        ("mine/corpus", 7),
        ("mine/encodings/test/cider", 4),
        ("mine/encodings/test/cbow", 1),
        ("mine/neighbours/test/captions/cider", 2),
        ("mine/judgements/test/cider", 1),
    ],
)
def test_a_deleted_artefact_is_detected_by_its_successors(folder: str, referrers: int, labels: Path) -> None:
    """Check the first encoding if a manifest does not say which split (test or all) it used."""
    shutil.rmtree(labels / folder.replace("test/cbow", "all/cbow"))
    (problem,) = check(labels).problems
    assert (problem.fault, problem.file, problem.found) == ("missing", str(labels / folder), "nothing")
    assert ("more)" in problem.expected, f"(and {referrers - 1} more)" in problem.expected) == (
        referrers > 1,
        referrers > 1,
    )
    assert "ignore this if you deleted it" in problem.todo


def test_only_files_in_verified_folders_can_be_missing(labels: Path) -> None:
    shutil.rmtree(labels / "mine/encodings")
    assert check(labels / "mine/exports").problems == []
    assert len(check(labels).problems) == 2


def test_an_artefact_made_from_others_is_stale_and_no_fault(labels: Path) -> None:
    layout = Layout(labels, "mine")
    facts = {"label": "cider", "split": "test"}
    make(layout.encoding("test", "cider"), "encoding", "cider", {"corpus": "abc"}, facts, size=7)
    findings = check(labels)
    assert findings.problems == []
    stale = [line.split(": ")[1] for line in findings.stale]
    artefacts = [
        layout.encoding("test", "fuse"),
        layout.lookup("test", "cider"),
        layout.judgement("test", "cider"),
        layout.neighbours("test", "captions", "cider"),
        layout.plan("test", "p"),  # made from the neighbours
        layout.report("test"),
    ]
    assert sorted(stale) == sorted(map(str, artefacts))
    assert any(
        "made from another encoding than the current one; `relabel judge --split test --label cider" in x
        for x in findings.stale
    )
