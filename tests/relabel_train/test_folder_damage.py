"""Contract: `verify=True` detects any changed byte of an exported folder, the default any array that was cut short or
extended; any other content of the folder raises a LookupFileError that names the file.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.relabel_train.exported import KINDS, opener, values

from relabel_train.folder import LookupFileError


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
def test_every_changed_byte_is_detected_and_named(kind: str, seeds: int, copy: Callable[[str], Path]) -> None:
    folder = copy(kind)
    expected = values(opener(kind)(folder))
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        for damaged in (d for seed in range(seeds) for d in damages(path, seed) if d != raw):
            path.write_bytes(damaged)
            with pytest.raises(LookupFileError, match=path.name):
                opener(kind)(folder, verify=True)
            resized = path.suffix == ".npy" and len(damaged) != len(raw)
            # No other exception is allowed.
            with pytest.raises(LookupFileError, match=path.name) if resized else suppress(LookupFileError):
                opener(kind)(folder)
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
            for verify in (True, False):
                if path.name == "manifest.json" and not verify:
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
    opener(kind)(folder)
    for missing in (folder / "nowhere", folder / "manifest.json", folder / "image.npy"):
        with pytest.raises(FileNotFoundError, match="relabel export"):
            opener(kind)(missing)


def header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


HEADERS = {
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "Fortran": "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }",
    "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 384), }",
    "open": "{'descr': '<f4', 'fortran_order': False, 'shape': (3",
    "call": "__import__('os').getpid()",
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
    "NaN": b'{"format": NaN}',
    "list": b"[]",
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
    ("cbow", "references", "5"),
    ("cbow", "pooling", "median"),
    ("cbow", "pooling", "refs"),
    ("cbow", "bounds", [1, -1]),
    ("cbow", "rows", [5, 5]),
    ("cbow", "rows", [0, 7]),
    ("cbow", "kind", "pickle"),
    ("cbow", "failed", 3),
    ("cbow", "neighbours.width", 7),
    ("cbow", "neighbours.rows", [3, 20]),
    ("cbow", "arrays.vectors.dtype", "|O"),
    ("cbow", "arrays.vectors.shape", [10**12, 10**12]),
    ("cbow", "arrays.vectors.sha256", "../x"),
    ("cbow", "arrays.image.shape", [7]),
    ("cbow", "symmetric", 1),
    ("cbow", "orientation", "rows are captions"),
    ("cider", "sizes.columns", 10**12),
    ("plan", "batches", 11),
    ("plan", "epochs", [10**15, 10]),
    ("plan", "batch_size", 10**9),
    ("plan", "shards", 10**12),
    ("plan", "captions", [7, 20]),
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
