"""Contract: the lookup of a fuse equals its relevance for every pooling and shape of batch, computed from the arrays
of its parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.fuse.fixtures import some_head, write_fuse_model
from tests.relabel.sources.fuse.test_fuse import fuse_project

from relabel import stages
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.fuse.model import FuseModel, Part, without_rows
from relabel.sources.relevance import block_of_pairs
from relabel.stages import Session, open_corpus
from relabel_train.lookup import open_lookup
from relabel_train.scoring.fuse import Feature, Head, HeadName


@pytest.fixture(scope="module")
def session(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return a fuse of vectors, n-grams and same_image, encoded and exported."""
    folder = tmp_path_factory.mktemp("fuse")
    labels = ["cbow", "cider", "same_image"]
    parts = {}
    for label in labels:
        source, manifest = small_project.config.source(label), stages.encoding(small_project, label, "all").open()
        parts[label] = Part(source.spec.name, source.is_pairwise(), without_rows(manifest.config))
    looks: list[tuple[str, Any]] = [("cbow", "max"), ("cbow", "mean"), ("cider", "set"), ("cider", "max")]
    looks.append(("same_image", "set"))
    heads: dict[HeadName, Head] = {
        "set": some_head(tuple(Feature(*look) for look in looks)),
        "single": some_head(tuple(Feature(label, "max") for label in labels), 1),
    }
    write_fuse_model(folder / "model", FuseModel(parts, heads))
    fuse = fuse_project(folder, small_project, {"lookedup": {"source": "fuse", "model": str(folder / "model")}})
    stages.encoding(fuse, "lookedup", "all").run()
    stages.lookup_export(fuse, "lookedup", "all").run()
    return fuse


@pytest.mark.parametrize("pooling", ["set", "first", "max", "mean"])
def test_blocks_equal_those_of_the_pipeline(session: Session, pooling: Pooling) -> None:
    """Compare images with 1 to 7 captions, a batch of one, float32 and float64."""
    lookup = open_lookup(session.folder("exports", "all", "lookup", "lookedup"), verify=True)
    fuse = stages.open_label(session, "lookedup", "all")
    corpus, random = open_corpus(session), np.random.default_rng(0)
    for count in (1, 3, 64):
        rows, columns = random.integers(0, len(corpus), (2, count))
        block = lookup.block(rows, columns, pooling=pooling, dtype=np.float64)
        paired = pooling == "first"
        references = References.single(rows.astype(np.int32)) if paired else corpus.references(corpus.image[rows])
        expected = block_of_pairs(fuse, references, columns.astype(np.int32), pooling)
        assert block == pytest.approx(expected, abs=1e-9)
        assert lookup.block(rows, columns, pooling=pooling) == pytest.approx(expected, abs=1e-6)
