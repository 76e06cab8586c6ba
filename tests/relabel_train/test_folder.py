"""Contract: an open export stays readable after another one has replaced it, and a worker refuses the other one. Files
are verified before their first use, once per machine.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.relabel_train.exported import opener

from relabel.store.artefact import _move
from relabel_train import stamps
from relabel_train.batches import Plan, open_plan
from relabel_train.folder import LookupFileError, MappedArray
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.stamps import _stamp


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
