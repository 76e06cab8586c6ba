"""Contract: an open export stays readable after another one has replaced it, and a worker refuses the other one."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.relabel_train.exported import opener

from relabel_train.folder import LookupFileError
from relabel_train.lookup import Lookup
from relabel_train.plan import Plan, open_plan


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
    new = variant(exports, kind, tmp_path / "new", 3)
    shutil.rmtree(out)
    new.rename(out)
    assert label_and_scale(opened) == (2, 2)
    with pytest.raises(LookupFileError, match="was exported there meanwhile"):
        pickle.loads(packed)


def test_mapped_files_hold_no_more_than_one_descriptor_each(copy: Callable[[str], Path]) -> None:
    folder, descriptors = copy("plan"), Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("this system does not list descriptors")
    before = len(list(descriptors.iterdir()))
    plans = [open_plan(folder) for _ in range(10)]
    assert len(list(descriptors.iterdir())) - before <= 10 * len(list(folder.glob("*.npy")))
    del plans
