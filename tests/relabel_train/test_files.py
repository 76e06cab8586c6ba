"""Contract: `verify=True` detects any changed byte of an export's description and arrays, the default any array that is
shorter or longer than described; errors name the file. An open export stays readable after another one has replaced it,
and a worker refuses the other one. No pickle is loaded.

Contract: a file that has no end or is too large is refused by name before it is read, and so is a description with a
field, a type or a value that it cannot have, or with a name that leads out of its folder.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.stages import Session
from relabel_train.files import LookupFileError
from relabel_train.lookup import open_lookup
from relabel_train.precomputed import PrecomputedBatches, open_batches

OPEN: dict[str, Any] = {"cbow": open_lookup, "batches": open_batches}
DESCRIPTION = {"cbow": "lookup.json", "batches": "batches.json"}


@pytest.fixture(scope="module")
def exports(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a lookup and a plan."""
    session = in_folder(small_project, tmp_path_factory.mktemp("batches"))
    session = with_params(session, "batches", batch_size=8, epochs=2, batches_per_epoch=5)
    job = stages.batches_export(session, "cbow", "all")
    job.run()
    return {"cbow": small_project.folder("exports", "all", "lookup", "cbow"), "batches": job.out}


@pytest.fixture
def folder(kind: str, exports: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(exports[kind], tmp_path / "export"))


def values(opened: Any) -> list[Any]:
    """Return all results of a lookup or plan."""
    if isinstance(opened, PrecomputedBatches):
        batches = [a.tolist() for n in range(len(opened)) for a in opened[n]]
        names = [opened.names(n) for n in range(len(opened))]
        return [opened.about, batches, names, opened.caption_ids.find([names[0][0][0]], "x").tolist()]
    rows = list(opened.rows)
    answers = [opened.block(rows[::7]), opened.same_image(rows[::7]), *opened.neighbours(rows[::7])]
    return [*(a.tolist() for a in answers), opened.caption_ids(rows), opened.image_ids(rows)]


def damages(path: Path) -> Iterator[bytes]:
    """Change the content of a file as a faulty disk, copy or editor does."""
    draws, raw = random.Random(path.name), path.read_bytes()
    for at in {0, 5, 8, 9, 12, len(raw) // 2, len(raw) - 1, *(draws.randrange(len(raw)) for _ in range(6))}:
        if at < len(raw):
            yield raw[:at] + bytes([raw[at] ^ (1 << draws.randrange(8))]) + raw[at + 1 :]
    yield from (b"", raw[: draws.randrange(len(raw))], raw[:-1], raw + b"\0", raw * 2, raw[:20], os.urandom(len(raw)))
    yield raw[: len(raw) // 2] + bytes(64) + raw[len(raw) // 2 + 64 :]


@pytest.mark.parametrize("kind", OPEN)
def test_a_changed_or_missing_file_is_refused_by_name(kind: str, folder: Path) -> None:
    expected = values(OPEN[kind](folder))
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        for damaged in (d for d in damages(path) if d != raw):
            path.write_bytes(damaged)
            named = pytest.raises(LookupFileError, match=path.name)
            with suppress(LookupFileError) if path.name == "manifest.json" else named:
                OPEN[kind](folder, verify=True)
            if path.suffix == ".npy" and len(damaged) != len(raw):
                with pytest.raises(LookupFileError, match=path.name):
                    OPEN[kind](folder)
        path.unlink()
        with pytest.raises(FileNotFoundError, match=path.name):
            OPEN[kind](folder, verify=True)
        if path.name == "manifest.json":
            OPEN[kind](folder)
        path.write_bytes(raw)
    assert values(OPEN[kind](folder, verify=True)) == expected
    for missing in (folder / "nowhere", folder / "manifest.json", folder / "image.npy"):
        with pytest.raises(FileNotFoundError, match="relabel export"):
            OPEN[kind](missing)


HEADERS = (
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 384), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3",
    "__import__('os').getpid()",
)
BODIES = (b'{"format": "\xff"}', b"[]", b'{"format": 99}', b'{"format": 5, "kind": "vectors"}')


@pytest.mark.parametrize("kind", OPEN)
def test_hostile_headers_and_descriptions_are_named(kind: str, folder: Path) -> None:
    array = next(folder.glob("blocks-*" if kind == "batches" else "vectors.npy"))
    headers = [b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() for text in HEADERS]
    hostile = [(array, raw, False) for header in headers for raw in (header + bytes(48), header[:30])]
    described = ((folder / DESCRIPTION[kind], False), (folder / "manifest.json", True))
    hostile += [(path, raw, verify) for path, verify in described for raw in BODIES]
    for path, raw, verify in hostile:
        intact = path.read_bytes()
        path.write_bytes(raw)
        with pytest.raises(LookupFileError, match=path.name):
            OPEN[kind](folder, verify=verify)
        path.write_bytes(intact)


@pytest.mark.parametrize("kind", OPEN)
def test_files_without_an_end_are_refused_unread(kind: str, folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        for place in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.touch()):
            path.unlink()
            place(path)
            if path.is_file():
                os.truncate(path, 20 << 30)  # no block of it is on disk
            for verify in {
                True,
                path.suffix == ".csv" or path.name == "manifest.json",
            }:  # the table is read when asked for
                with pytest.raises(LookupFileError, match=path.name):
                    OPEN[kind](folder, verify=verify)
        path.unlink()
        path.write_bytes(raw)


NAN = float("nan")
NEAR = {"fingerprint": "", "rows": [0, 1 << 40], "candidates": "all", "width": 1, "index": None}
CURVE: dict[str, Any] = {"relevance": [0, 1], "expected": [1, 2], "probability": [0, 0.5], "own": [5, 1]}
NUMBERS: dict[str, list[dict[str, Any]]] = {
    "cbow": [
        *({"rows": rows} for rows in ([0, 1 << 62], [-5, 5], [0], [1, 2, 3], ["a", "b"])),
        *({"references": 0}, {"references": 10**12}, {"failed": 10**9}, {"failed": True}, {"bounds": [NAN, 1]}),
        *({"kind": "features"}, {"kind": "frob"}, {"pooling": "frob"}, {"pooling": "set"}, {"neighbours": NEAR}),
        *({"curve": CURVE | wrong} for wrong in ({"relevance": [1, 1]}, {"expected": [1]}, {"own": [9, 1]})),
        *({"curve": CURVE | {"probability": values}} for values in ([0.5, 0.4], [0, 2], [-1, 0], [])),
        *({"sizes": {"columns": 10**12}}, {"sizes": {"columns": -1}}),
        *({"arrays": {name: {"dtype": "<i4", "shape": [1], "sha256": ""}}} for name in ("../image", "/image", "a//b")),
    ],
    "batches": [
        *({"batch_size": 0}, {"batches": 1 << 62}, {"batches_per_shard": 0}, {"shards": 10**12}, {"left_out": 0.5}),
        *({"epochs": epochs} for epochs in ([10**12], [-1], 7, {})),
    ],
}


@pytest.mark.parametrize("kind", OPEN)
def test_a_description_of_other_types_or_numbers_is_named(kind: str, folder: Path) -> None:
    path = folder / DESCRIPTION[kind]
    body = json.loads(path.read_text())
    changes = [*({name: wrong} for name in body for wrong in (["x"], ...)), {"unknown": 1}, *NUMBERS[kind]]
    if kind == "cbow":
        # The neighbours of the same split begin elsewhere then.
        changes.append({"rows": [row + 5 for row in body["rows"]]})
    for change in changes:
        path.write_text(json.dumps({name: value for name, value in (body | change).items() if value is not ...}))
        with pytest.raises(LookupFileError, match=path.name):
            print(OPEN[kind](folder), "accepted", change)


@pytest.mark.parametrize("kind", OPEN)
def test_an_open_export_crosses_processes_and_is_unchanged_when_its_folder_is_replaced(kind: str, folder: Path) -> None:
    opened = OPEN[kind](folder, verify=False)
    packed = pickle.dumps(opened)
    assert len(packed) < 1000
    expected = values(pickle.loads(packed))
    other = Path(shutil.copytree(folder, folder.parent / "other"))
    description = other / DESCRIPTION[kind]
    description.write_text(json.dumps(json.loads(description.read_text()) | {"label": "other"}))
    for path in [*other.glob("blocks-*"), *other.glob("vectors.npy")]:
        np.save(path, np.load(path) / 2)
    shutil.rmtree(folder)
    other.rename(folder)
    assert values(opened) == expected != values(OPEN[kind](folder))
