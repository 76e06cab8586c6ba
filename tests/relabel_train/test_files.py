"""Contract: `verify=True` detects any changed byte of an export's description and arrays, the default any array that is
shorter or longer than described; errors name the file. An open export stays readable after another one has replaced it,
and a worker refuses the other one. No pickle is loaded.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.relabel_train.exported import KINDS, opener, values

from relabel_train.files import LookupFileError
from relabel_train.lookup import Lookup
from relabel_train.precomputed import PrecomputedBatches


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
            named = pytest.raises(LookupFileError, match=path.name)
            with suppress(LookupFileError) if path.name == "manifest.json" else named:
                opener(kind)(folder, verify=True)
            if path.suffix == ".npy" and len(damaged) != len(raw):
                with pytest.raises(LookupFileError, match=path.name):
                    opener(kind)(folder)
        path.write_bytes(raw)
    assert values(opener(kind)(folder, verify=True)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_named(kind: str, copy: Callable[[str], Path]) -> None:
    folder, aside = copy(kind), copy(kind).parent / "aside"
    for path in sorted(folder.iterdir()):
        path.rename(aside)
        with pytest.raises(FileNotFoundError, match=f"{path.name}: file not found"):
            opener(kind)(folder, verify=True)
        if path.name == "manifest.json":
            opener(kind)(folder)
        aside.rename(path)
    for missing in (folder / "nowhere", folder / "manifest.json", folder / "image.npy"):
        with pytest.raises(FileNotFoundError, match="relabel export"):
            opener(kind)(missing)


def header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


HEADERS = {
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "other type": "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }",
    "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 384), }",
    "open": "{'descr': '<f4', 'fortran_order': False, 'shape': (3",
    "call": "__import__('os').getpid()",
}


@pytest.mark.parametrize("name", list(HEADERS))
@pytest.mark.parametrize("kind", ["cbow", "batches"])
def test_hostile_headers_are_named(kind: str, name: str, copy: Callable[[str], Path]) -> None:
    folder = copy(kind)
    path = next(folder.glob("blocks-*")) if kind == "batches" else folder / "vectors.npy"
    for raw in (header(HEADERS[name], bytes(48)), header(HEADERS[name])[:30]):
        path.write_bytes(raw)
        with pytest.raises(LookupFileError, match=path.name):
            opener(kind)(folder, verify=False)


def variant(exports: dict[str, Path], kind: str, folder: Path, number: int) -> Path:
    """Copy an export with the label NUMBER in its description and values that are NUMBER times as large."""
    shutil.copytree(exports[kind], folder)
    name = "batches.json" if kind == "batches" else "lookup.json"
    body = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(body | {"label": str(number)}))
    for path in [*folder.glob("blocks-*"), *folder.glob("vectors.npy")]:
        scale = number if kind == "batches" else number**0.5  # a cosine is a product of two vectors
        np.save(path, (np.load(path) * scale).astype(np.float32))
    return folder


def label_and_scale(opened: Lookup | PrecomputedBatches) -> tuple[int, int]:
    """Return the label in the description and the scale of the arrays."""
    if isinstance(opened, PrecomputedBatches):
        scales = {float(opened[n].relevance.max().round()) for n in range(len(opened))}
        assert len(scales) == 1
        return int(opened.about.label), int(scales.pop())
    return int(opened.about.label), round(float(opened.block(list(opened.rows)[:40], pooling="first").max()))


@pytest.mark.parametrize("kind", ["cbow", "batches"])
def test_an_open_export_is_unchanged_and_a_worker_refuses_another(
    kind: str, exports: dict[str, Path], tmp_path: Path
) -> None:
    out = variant(exports, kind, tmp_path / "x", 2)
    opened = opener(kind)(out, verify=False)
    packed = pickle.dumps(opened)
    assert len(packed) < 1000
    assert label_and_scale(pickle.loads(packed)) == (2, 2)
    new = variant(exports, kind, tmp_path / "new", 3)
    shutil.rmtree(out)
    new.rename(out)
    assert label_and_scale(opened) == (2, 2)
    with pytest.raises(LookupFileError, match="exported there meanwhile"):
        pickle.loads(packed)
