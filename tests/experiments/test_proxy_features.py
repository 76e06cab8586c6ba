"""Contract: the token vectors of one caption represent each image. That caption is in no corpus, lookup or label
that training and evaluation read.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments import proxy_features as package
from experiments.params import ProxyFeaturesParams
from experiments.proxy_features import proxy_features, proxy_folder, remaining_project
from relabel import stages
from relabel.stages import Project
from relabel_train.lookup import open_lookup
from relabel_train.reference.data import check_not_held_out, read_split
from relabel_train.reference.features import open_features
from relabel_train.reference.options import FitError

COUNTS = {"train": 10, "val": 5, "test": 8}
SMALL = ProxyFeaturesParams(**COUNTS, vectors=4)


def fake_vectors(_: Path, texts: list[str], most: int) -> NDArray[np.float16]:
    """Return one vector per word, which identifies the word."""
    out = np.zeros((len(texts), most, 3), np.float16)
    for i, text in enumerate(texts):
        for j, word in enumerate(text.split()[:most]):
            out[i, j] = [len(word), ord(word[0]) % 97 + 1, 1]
    return out


def test_no_label_contains_a_held_out_caption(
    small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "find_model", lambda *_: SimpleNamespace(folder=Path(), sha256=lambda: "fake"))
    monkeypatch.setattr(package, "token_vectors", fake_vectors)
    shutil.copytree(small_project.folder("corpus"), tmp_path / "coco" / "corpus")
    project = replace(small_project, labels=tmp_path)
    proxy_features(project, SMALL).run()
    left = remaining_project(project)
    stages.ingest(left).run()
    features, corpus = open_features(proxy_folder(project)), left.corpus
    assert left.folder().name == "coco_proxy"
    assert not set(features.about["held_out"]) & set(corpus.caption_ids)
    assert set(corpus.image_ids) == set(features.image_ids)
    stages.encode(left, "cider", "all").run()
    stages.export_lookup(left, "cider", "all").run()
    lookup = open_lookup(left.folder("exports", "all", "lookup", "cider"))
    check_not_held_out(lookup, features)
    split = read_split(left.folder("corpus"), "train", features)
    assert len(split.image_ids) == COUNTS["train"]
    lookup.block(lookup.rows_of(split.caption_ids))
    complete = open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    with pytest.raises(FitError, match="stands in for its image"):
        check_not_held_out(complete, features)
