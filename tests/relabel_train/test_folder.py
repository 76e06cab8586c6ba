"""Contract: an exported folder is read as one export or refused. A reader gets all files of one export even if
another one replaces it meanwhile. Any changed byte is detected before it is used. Any other content of the folder
raises a LookupFileError that names the file.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel import stages
from relabel.export.params import ExportPlanParams
from relabel.stages import Project
from relabel.store.artefact import _move
from relabel_train import folder as module
from relabel_train import stamps
from relabel_train.batches import Plan, open_plan
from relabel_train.folder import ExportFolder, LookupFileError, MappedArray
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.stamps import _stamp

Opener = Callable[..., Any]
KINDS = ("cbow", "cider", "plan")


@pytest.fixture(scope="module")
def exports(small_project: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a lookup of vectors, one of n-grams, and a plan of several shards."""
    params = ExportPlanParams(batch_size=8, epochs=2, batches=5)
    config = small_project.config.model_copy(
        update={"export": small_project.config.export.model_copy(update={"plan": params})}
    )
    project = Project(config, small_project.runtime, tmp_path_factory.mktemp("plan"))
    (project.layout.root.parent / "coco").mkdir(exist_ok=True)
    for name in ("corpus", "encodings"):
        (project.layout.root / name).symlink_to(small_project.layout.root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relabel.export.plan.spec._SHARD", 4 * 64 * 3)  # three batches
        job = stages.export_plan(project, "cbow", "all")
        job.run()
    lookups = {label: small_project.layout.lookup("all", label) for label in ("cbow", "cider")}
    return {**lookups, "plan": job.out}


def opener(kind: str) -> Opener:
    return open_plan if kind == "plan" else open_lookup


def values(opened: Lookup | Plan) -> list[Any]:
    """Return all results of a lookup or plan."""
    if isinstance(opened, Plan):
        batches = [a for n in range(len(opened)) for a in opened[n]]
        names = [opened.names(n) for n in range(len(opened))]
        return [opened.about, *(a.tolist() for a in batches), names, opened.caption_ids.find([names[0][0][0]], "x")]
    rows = list(opened.rows)
    answers = [opened.block(rows[::7]), opened.same_image(rows[::7]), *opened.neighbours(rows[::7])]
    return [*(a.tolist() for a in answers), opened.caption_ids(rows), opened.image_ids(rows)]


@pytest.fixture
def copy(exports: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies an export to the same path again."""

    def make(kind: str) -> Path:
        folder = tmp_path / "export"
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(exports[kind], folder))

    return make


# One export, replaced meanwhile


def variant(exports: dict[str, Path], kind: str, folder: Path, number: int) -> Path:
    """Copy an export with the label NUMBER in its description and values that are NUMBER times as large."""
    shutil.copytree(exports[kind], folder)
    name = "plan.json" if kind == "plan" else "lookup.json"
    body = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(body | {"label": str(number)}))
    for path in [*folder.glob("blocks-*"), *folder.glob("vectors.npy")]:
        scale = number if kind == "plan" else number**0.5  # a cosine is a product of two vectors
        np.save(path, (np.load(path) * scale).astype(np.float32))
    return folder


def label_and_scale(opened: Lookup | Plan) -> tuple[int, int]:
    """Return the label in the description and the scale of the arrays."""
    if isinstance(opened, Plan):
        scales = {float(opened[n].relevance.max().round()) for n in range(len(opened))}
        assert len(scales) == 1
        return int(opened.about["label"]), int(scales.pop())
    return int(opened.about.label), round(float(opened.block(list(opened.rows)[:40], pooling="paired").max()))


@pytest.mark.parametrize("handles", [True, False])
@pytest.mark.parametrize("kind", ["cbow", "plan"])
def test_an_export_that_replaces_one_being_opened_is_not_mixed_with_it(
    kind: str, handles: bool, exports: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HAS_HANDLES", handles)
    real = ExportFolder.map
    for at in range(8):  # the new export replaces the old one before array number `at` is mapped
        (tmp_path / str(at)).mkdir()
        out, calls = variant(exports, kind, tmp_path / str(at) / "x", 2), iter(range(1000))
        new = variant(exports, kind, tmp_path / str(at) / "new", 3)

        def swap(*args: Any, out: Path = out, new: Path = new, at: int = at, calls: Any = calls) -> MappedArray:
            if next(calls) == at:
                _move(new, out)
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(ExportFolder, "map", swap)
            opened = opener(kind)(out, verify=False)
        assert label_and_scale(opened) in ((2, 2), (3, 3))
        assert label_and_scale(opener(kind)(out, verify=False)) == (3, 3)


@pytest.mark.parametrize("kind", ["cbow", "plan"])
def test_an_open_export_is_unchanged_and_a_worker_refuses_another(
    kind: str, exports: dict[str, Path], tmp_path: Path
) -> None:
    out = variant(exports, kind, tmp_path / "x", 2)
    opened = opener(kind)(out, verify=False)
    packed = pickle.dumps(opened)
    assert label_and_scale(pickle.loads(packed)) == (2, 2)
    _move(variant(exports, kind, tmp_path / "new", 3), out)
    assert label_and_scale(opened) == (2, 2)
    with pytest.raises(LookupFileError, match="was exported there meanwhile"):
        pickle.loads(packed)


def read_on(kind: str, out: Path, sender: Any, stop: Any) -> None:
    """Open repeatedly; send the number of openings and the mismatches."""
    count, wrong = 0, []
    while not stop.is_set():
        try:
            label, scale = label_and_scale(opener(kind)(out, verify=False))
        except Exception as error:
            wrong.append(repr(error))
        else:
            wrong += [f"{label} {scale}"] * (label != scale)
        count += 1
    sender.send((count, wrong))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.parametrize("times", [60, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["cbow", "plan"])
def test_a_reader_in_another_process_gets_complete_exports(
    kind: str, times: int, exports: dict[str, Path], tmp_path: Path
) -> None:
    out = variant(exports, kind, tmp_path / "x", 2)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    stop = context.Event()
    reader = context.Process(target=read_on, args=(kind, out, sender, stop))
    reader.start()
    for i in range(times):
        _move(variant(exports, kind, tmp_path / f"new-{i}", 2 + i % 3), out)
    stop.set()
    assert receiver.poll(60)
    count, wrong = receiver.recv()
    reader.join()
    assert wrong == []
    assert count > times / 10


# Damage


def damages(path: Path, seed: int) -> Iterator[bytes]:
    """Change the content of a file as a faulty disk, copy or editor does."""
    draws, raw = random.Random(f"{path.name} {seed}"), path.read_bytes()
    for at in {0, 5, 8, 9, 12, len(raw) // 2, len(raw) - 1, *(draws.randrange(len(raw)) for _ in range(6))}:
        if at < len(raw):
            yield raw[:at] + bytes([raw[at] ^ (1 << draws.randrange(8))]) + raw[at + 1 :]
    yield from (b"", raw[: draws.randrange(len(raw))], raw[:-1], raw + b"\0", raw * 2, raw[:20], os.urandom(len(raw)))
    yield raw[: len(raw) // 2] + bytes(64) + raw[len(raw) // 2 + 64 :]


@pytest.mark.parametrize("seeds", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_changed_byte_is_detected_and_named(
    kind: str, seeds: int, copy: Callable[[str], Path], cache: Path
) -> None:
    folder = copy(kind)
    expected = values(opener(kind)(folder))
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        for damaged in (d for seed in range(seeds) for d in damages(path, seed) if d != raw):
            path.write_bytes(damaged)
            for verify in ("once", True):
                with pytest.raises(LookupFileError, match=path.name):
                    values(opener(kind)(folder, verify=verify))
            with suppress(LookupFileError):  # no other exception is allowed
                opener(kind)(folder, verify=False)
        path.write_bytes(raw)
    assert values(opener(kind)(folder, verify=True)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_other_content_at_the_path_of_a_file_is_named(kind: str, copy: Callable[[str], Path]) -> None:
    folder, aside = copy(kind), copy(kind).parent / "aside"
    for path in sorted(folder.iterdir()):
        path.rename(aside)
        for make in (None, Path.mkdir, os.mkfifo, lambda p: p.symlink_to(p)):
            if make is not None:
                make(path)
            for verify in ("once", True, False):
                if path.name == "manifest.json" and verify is False:
                    continue
                kinds = (LookupFileError, FileNotFoundError)
                with pytest.raises(kinds, match=rf"{path.name}: (file not found|not a regular|cannot be read)"):
                    opener(kind)(folder, verify=verify)
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        aside.rename(path)
    (folder / "manifest.json").unlink()
    opener(kind)(folder, verify=False)
    for missing in (folder / "nowhere", folder / "manifest.json", folder / "image.npy"):
        with pytest.raises(FileNotFoundError, match="relabel export"):
            opener(kind)(missing)


def header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


HEADERS = {
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "records": "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
    "Fortran": "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }",
    "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 384), }",
    "huger": "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 2000 + ", 384), }",
    "digits": "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 4400 + ",), }",
    "deep": "(" * 3000,
    "open": "{'descr': '<f4', 'fortran_order': False, 'shape': (3",
    "call": "__import__('os').getpid()",
    "negative": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }",
    "truth": "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4), }",
    "long": "{'descr': '<L8', 'fortran_order': False, 'shape': (3,), }",
}


@pytest.mark.parametrize("name", list(HEADERS))
@pytest.mark.parametrize("kind", ["cbow", "plan"])
def test_hostile_headers_are_named(kind: str, name: str, copy: Callable[[str], Path]) -> None:
    folder = copy(kind)
    path = next(folder.glob("blocks-*")) if kind == "plan" else folder / "vectors.npy"
    for raw in (header(HEADERS[name], bytes(48)), header(HEADERS[name]), header(HEADERS[name])[:30]):
        path.write_bytes(raw)
        with pytest.raises(LookupFileError, match=path.name):
            opener(kind)(folder, verify=False)


JSON = {
    "not UTF-8": b'{"format": "\xff"}',
    "deep": b'{"a":' * 100_000,
    "digits": b'{"format": ' + b"9" * 5000 + b"}",
    "NaN": b'{"format": NaN}',
    "list": b"[]",
    "empty": b"",
    "UTF-16": '{"format": 2}'.encode("utf-16"),
    "other format": b'{"format": 99}',
    "no names": b'{"format": 2, "kind": "plan"}',
}


@pytest.mark.parametrize("name", list(JSON))
@pytest.mark.parametrize("kind", ["cbow", "plan"])
def test_invalid_descriptions_are_named(kind: str, name: str, copy: Callable[[str], Path]) -> None:
    for file, verify in (("plan.json" if kind == "plan" else "lookup.json", False), ("manifest.json", True)):
        folder = copy(kind)
        (folder / file).write_bytes(JSON[name])
        with pytest.raises(LookupFileError, match=file):
            opener(kind)(folder, verify=verify)


FIELDS: list[tuple[str, str, Any]] = [
    ("cbow", "references", 1_000_000_000),
    ("cbow", "references", 0),
    ("cbow", "references", True),
    ("cbow", "references", "5"),
    ("cbow", "pooling", "median"),
    ("cbow", "pooling", "refs"),
    ("cbow", "poolings", ["paired", "max", "mean", "refs"]),
    ("cbow", "poolings", []),
    ("cbow", "bounds", [1, -1]),
    ("cbow", "bounds", [0, 10**400]),
    ("cbow", "bounds", [None, 1]),
    ("cbow", "rows", [0, 10**30]),
    ("cbow", "rows", [5, 5]),
    ("cbow", "rows", [0, 7]),
    ("cbow", "rows", [0]),
    ("cbow", "kind", "pickle"),
    ("cbow", "kind", "features"),
    ("cbow", "kind", "others"),
    ("cbow", "kind", ["vectors"]),
    ("cbow", "failed", 3),
    ("cbow", "failed", -1),
    ("cbow", "neighbours.width", 9),
    ("cbow", "neighbours.width", 7),
    ("cbow", "neighbours.rows", [3, 20]),
    ("cbow", "neighbours.rows", [-3, 20]),
    ("cbow", "arrays.vectors.dtype", "|O"),
    ("cbow", "arrays.vectors.shape", [10**12, 10**12]),
    ("cbow", "arrays.vectors.shape", [-1, 16]),
    ("cbow", "arrays.vectors.sha256", "../x"),
    ("cbow", "arrays.image.shape", [7]),
    ("cbow", "symmetric", 1),
    ("cbow", "label", None),
    ("cbow", "orientation", "rows are captions"),
    ("cbow", "more", 1),
    ("cider", "sizes.columns", 10**12),
    ("cider", "sizes.frequent", 10**12),
    ("cider", "sizes", {}),
    ("plan", "batches", 11),
    ("plan", "epochs", [10**15, 10]),
    ("plan", "epochs", 2),
    ("plan", "batch_size", 10**9),
    ("plan", "batch_size", 0),
    ("plan", "batches_per_shard", 10**6),
    ("plan", "batches_per_shard", 0),
    ("plan", "shards", 10**12),
    ("plan", "captions", [7, 20]),
    ("plan", "images", [0, 10**9]),
    ("plan", "bounds", [1, 0]),
    ("plan", "pooling", "median"),
    ("plan", "kind", "lookup"),
    ("plan", "sampler", []),
    ("plan", "more", 1),
]


@pytest.mark.parametrize(("kind", "name", "value"), FIELDS)
def test_invalid_fields_are_refused_without_verifying(
    kind: str, name: str, value: Any, copy: Callable[[str], Path]
) -> None:
    folder = copy(kind)
    path = folder / ("plan.json" if kind == "plan" else "lookup.json")
    body = json.loads(path.read_text(encoding="utf-8"))
    *outer, last = name.split(".")
    inner = body
    for part in outer:
        inner = inner[part]
    inner[last] = value
    path.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(LookupFileError, match=r"\.(json|npy): "):
        opener(kind)(folder, verify=False)


# Verification once per machine


def checks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record the files that are compared with their sha256."""
    paths: list[Path] = []
    real = MappedArray.check

    def check(self: MappedArray) -> None:
        paths.append(self.path)
        real(self)

    monkeypatch.setattr(MappedArray, "check", check)
    return paths


def test_a_lookup_is_verified_once_until_a_file_is_written_to(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, checked = copy("cbow"), checks(monkeypatch)
    arrays = sorted(folder.glob("*.npy"))
    for verify, expected in (("once", arrays), ("once", []), (False, []), (True, arrays), ("once", [])):
        checked.clear()
        lookup = open_lookup(folder, verify)
        assert sorted(checked) == expected
    pickle.loads(pickle.dumps(lookup)).block([1, 2])
    assert checked == []  # a spawned worker reads files that its parent has verified
    raw = (folder / "image.npy").read_bytes()
    status = (folder / "image.npy").stat()
    (folder / "image.npy").write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    os.utime(
        folder / "image.npy", ns=(status.st_atime_ns, status.st_mtime_ns)
    )  # the time of modification does not reveal the write
    with pytest.raises(LookupFileError, match=r"image\.npy: expected sha256"):
        open_lookup(folder)
    (folder / "image.npy").write_bytes(raw)
    open_lookup(folder)
    assert len(_stamp(folder).read_text()) == 64
    with pytest.raises(ValueError, match="use 'once', True or False"):
        open_lookup(folder, verify="always")  # type: ignore[arg-type]


def test_without_a_cache_every_opening_verifies(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("RELABEL_CACHE", str(tmp_path / "file"))
    folder, checked = copy("cbow"), checks(monkeypatch)
    for _ in range(2):
        checked.clear()
        open_lookup(folder)
        assert len(checked) == len(list(folder.glob("*.npy")))
    monkeypatch.delenv("RELABEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    open_lookup(folder)
    assert stamps.is_verified(folder.resolve(), (tmp_path / "cache/relabel/verified" / _stamp(folder).name).read_text())


def test_a_plans_shard_is_verified_before_its_first_batch(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, checked = copy("plan"), checks(monkeypatch)
    plan = open_plan(folder)
    assert checked == []
    first = plan[0]
    names = ["blocks-00000-of-00004.npy", "images.npy", "rows.npy"]
    assert sorted(p.name for p in checked) == names
    np.testing.assert_array_equal(plan[1].rows, plan.rows(1))
    assert len(checked) == 3
    raw = (folder / "blocks-00003-of-00004.npy").read_bytes()
    (folder / "blocks-00003-of-00004.npy").write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    for _ in range(2):
        with pytest.raises(LookupFileError, match=r"blocks-00003-of-00004\.npy: expected sha256"):
            plan[9]
    np.testing.assert_array_equal(plan[0].relevance, first.relevance)
    with pytest.raises(LookupFileError, match="blocks-00003"):
        open_plan(folder, verify=True)
    open_plan(folder, verify=False)[9]


def test_mapped_files_hold_no_more_than_one_descriptor_each(copy: Callable[[str], Path]) -> None:
    folder, descriptors = copy("plan"), Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("this system does not list descriptors")
    before = len(list(descriptors.iterdir()))
    plans = [open_plan(folder) for _ in range(10)]
    assert len(list(descriptors.iterdir())) - before <= 10 * len(list(folder.glob("*.npy")))
    del plans
