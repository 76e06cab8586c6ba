"""Contract: an artefact is complete or absent, is reused only under the same fingerprint, and resumes file by file.
A reader refuses files that differ from the manifest and names them. One run at a time works on an artefact; a second
one waits.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.store.file_sizes import file_size_limit

from relabel.core.errors import CheckError, MissingError, PartialError
from relabel.core.runtime import SilentProgress
from relabel.store import artefact as artefacts
from relabel.store.artefact import build, exclusive, holder_file, work_folder
from relabel.store.manifest import Spec, open_artefact, read_parts
from relabel.store.workdir import Work, part_name, part_ranges

ROWS = range(3, 10)


def artefact(**semantic: object) -> Spec:
    return Spec("encoding", "demo", {"size": 3, **semantic}, {"corpus": "abc"})


def filler(made: list[int], stop_at: int | None = None) -> Callable[[Work], None]:
    def fill(work: Work) -> None:
        parts = part_ranges(ROWS, 3)
        for i, rows in enumerate(parts):

            def make(i: int = i, rows: range = rows) -> pa.Table:
                if i == stop_at:
                    raise KeyboardInterrupt
                made.append(i)
                return pa.table({"row": pa.array(rows, pa.int32())})

            work.part(i, len(parts), make)
        work.facts["rows"] = [ROWS.start, ROWS.stop]

    return fill


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "manifest.json"}


def test_shards_have_fixed_rows_and_their_number_in_the_name() -> None:
    assert part_ranges(ROWS, 3) == [range(3, 6), range(6, 9), range(9, 10)]
    assert part_name(2, 13) == "part-00002-of-00013.parquet"


def test_build_then_read(tmp_path: Path) -> None:
    manifest, built = build(tmp_path / "out", artefact(), filler([]))
    assert built
    assert manifest.parts == [part_name(i, 3) for i in range(3)]
    opened = open_artefact(tmp_path / "out", "encoding")
    assert opened == manifest
    assert read_parts(tmp_path / "out", opened)["row"].to_pylist() == list(ROWS)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["manifest.json", *opened.parts]


def test_the_second_build_does_nothing(tmp_path: Path) -> None:
    build(tmp_path / "out", artefact(), filler([]))
    files_made: list[int] = []
    _, built = build(tmp_path / "out", artefact(), filler(files_made))
    assert (built, files_made) == (False, [])


def test_another_parameter_or_input_is_a_new_build(tmp_path: Path) -> None:
    build(tmp_path / "out", artefact(), filler([]))
    for other in (artefact(sigma=6.0), Spec("encoding", "demo", {"size": 3}, {"corpus": "abd"})):
        files_made: list[int] = []
        manifest, built = build(tmp_path / "out", other, filler(files_made))
        assert (built, files_made) == (True, [0, 1, 2])
        assert manifest.fingerprint == other.fingerprint


def test_the_name_of_a_label_does_not_change_the_fingerprint() -> None:
    assert artefact().fingerprint == Spec("encoding", "other", {"size": 3}, {"corpus": "abc"}).fingerprint


def test_an_interrupted_build_keeps_the_old_artefact_and_resumes(tmp_path: Path) -> None:
    build(tmp_path / "out", artefact(), filler([]))
    old = bytes_of(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "out", artefact(new=1), filler([], stop_at=2))
    assert bytes_of(tmp_path / "out") == old
    files_made: list[int] = []
    build(tmp_path / "out", artefact(new=1), filler(files_made))
    assert files_made == [2]
    build(tmp_path / "whole", artefact(new=1), filler([]))
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")


def test_a_deleted_out_is_built_again(tmp_path: Path) -> None:
    """Check a rebuild after DVC deleted the outs of a stage, as it does before a run."""
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "out", artefact(), filler([], stop_at=1))
    files_made: list[int] = []
    build(tmp_path / "out", artefact(), filler(files_made))
    assert files_made == [1, 2]


def test_unfinished_work_under_other_parameters_is_kept_until_the_artefact_is_built(tmp_path: Path) -> None:
    """Check that a run which finds the artefact keeps such work, and that a run which builds the artefact removes
    it.
    """
    out = tmp_path / "out"
    build(out, artefact(), filler([]))
    for other in (out, tmp_path / "out-longer"):
        with pytest.raises(KeyboardInterrupt):
            build(other, artefact(new=1), filler([], stop_at=2))
    build(out, artefact(), filler([]))
    unfinished = [work_folder(path, artefact(new=1).fingerprint) for path in (out, tmp_path / "out-longer")]
    assert sorted(path for path in (tmp_path / ".work").iterdir() if path.is_dir()) == sorted(unfinished)
    build(out, artefact(new=2), filler([]))
    assert [path for path in (tmp_path / ".work").iterdir() if path.is_dir()] == unfinished[1:]
    files_made: list[int] = []
    build(tmp_path / "out-longer", artefact(new=1), filler(files_made))
    assert files_made == [2]


def test_a_damaged_artefact_is_refused_by_name_and_rebuilt(tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest, _ = build(out, artefact(), filler([]))
    victim = out / manifest.parts[1]
    body = bytearray(victim.read_bytes())
    body[len(body) // 2] ^= 1
    victim.write_bytes(bytes(body))
    with pytest.raises(CheckError, match=f"{victim.name}.*expected sha256 .*found"):
        open_artefact(out, "encoding")
    victim.unlink()
    with pytest.raises(CheckError, match=victim.name):
        open_artefact(out, "encoding")
    assert build(out, artefact(), filler([]))[1]
    open_artefact(out, "encoding")


def test_a_reader_refuses_other_kinds_and_formats(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="none: no corpus here"):
        open_artefact(tmp_path / "none", "corpus")
    out = tmp_path / "out"
    build(out, artefact(), filler([]))
    with pytest.raises(CheckError, match="expected corpus"):
        open_artefact(out, "corpus")
    body = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(body | {"format": 99}))
    with pytest.raises(CheckError, match="format 99"):
        open_artefact(out, "encoding")
    (out / "manifest.json").write_text("{")
    with pytest.raises(CheckError, match="not a manifest"):
        open_artefact(out, "encoding")


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    big = pa.table({"text": [str(hash((i, "x"))) for i in range(50_000)]})

    def fill(work: Work) -> None:
        work.part(0, 2, lambda: pa.table({"row": [1]}))
        work.part(1, 2, lambda: big)

    with file_size_limit(64 << 10), pytest.raises(PartialError, match="run it again"):
        build(tmp_path / "out", artefact(), fill)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / ".work").rglob("*.part"))
    manifest, _ = build(tmp_path / "out", artefact(), fill)
    assert pq.read_table(tmp_path / "out" / manifest.parts[1]).num_rows == 50_000


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        RuntimeError("Error while serializing: I/O error: File too large (os error 27)"),
    ],
)
def test_a_full_disk_reported_as_a_message_is_recognised(error: Exception, tmp_path: Path) -> None:
    def fill(work: Work) -> None:
        raise error

    with pytest.raises(PartialError, match="could not write") as raised:
        build(tmp_path / "out", Spec("encoding", "demo", {}, {}), fill)
    assert "Free some space" in str(raised.value)


def test_other_errors_of_a_library_are_unchanged(tmp_path: Path) -> None:
    def fill(work: Work) -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        build(tmp_path / "out", Spec("encoding", "demo", {}, {}), fill)


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.written = threading.Event()

    def note(self, text: str) -> None:
        self.lines.append(text)
        self.written.set()


def test_a_second_run_waits_and_names_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts, "_PATIENCE", 0.05)
    out, folder, order, notes = tmp_path / "out", tmp_path / ".work", [], Notes()

    def second() -> None:
        with exclusive(out, folder, notes):
            order.append("second")

    thread = threading.Thread(target=second)
    with exclusive(out, folder):
        thread.start()
        assert notes.written.wait(20)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]
    assert notes.lines == [f"waiting for another run on {out} (pid {os.getpid()})"]
    assert not holder_file(out, folder).exists()


def test_the_lock_of_another_artefact_is_free(tmp_path: Path) -> None:
    with exclusive(tmp_path / "a", tmp_path / ".work"), exclusive(tmp_path / "b", tmp_path / ".work"):
        assert holder_file(tmp_path / "b", tmp_path / ".work").read_text() == str(os.getpid())
