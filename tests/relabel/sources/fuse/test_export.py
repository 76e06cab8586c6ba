"""Contract: the lookup of a fuse equals its relevance for every pooling and shape of batch, computed from the arrays
of its parts. Small trees have the pipeline's bits. A fuse that a lookup cannot represent is refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.fuse.fixtures import fitted_head, small_fuse, write_fuse_model
from tests.relabel.sources.fuse.test_fuse import fuse_project

from relabel import stages
from relabel.core.errors import UsageError
from relabel.core.types import Pooling
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.model import FuseModel, Head, HeadName, Part, add_trees, without_rows
from relabel.sources.fuse.relevance import write_others
from relabel.stages import Project
from relabel.store.workdir import Work
from relabel_train.lookup import open_lookup
from relabel_train.lookup.fuse import SmallTrees


@pytest.fixture(scope="module")
def project(small_project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a fuse with trees of vectors, n-grams and same_image, encoded and exported with neighbours."""
    folder = tmp_path_factory.mktemp("fuse")
    labels = ["cbow", "cider", "same_image"]
    parts = {}
    for label in labels:
        source, manifest = small_project.config.source(label), stages.encode(small_project, label, "all").open()
        parts[label] = Part(source.spec.name, source.spec.kind, source.is_pairwise(), without_rows(manifest.semantic))
    looks: list[tuple[str, Any]] = [("cbow", "max"), ("cbow", "second"), ("cbow", "mean"), ("cider", "refs")]
    looks += [("cider", "max"), ("cider", "second"), ("same_image", "refs")]
    heads: dict[HeadName, Head] = {
        "set": fitted_head(tuple(Feature(*look) for look in looks)),
        "single": fitted_head(tuple(Feature(label, "max") for label in labels), 1),
    }
    write_fuse_model(folder / "model", FuseModel(parts, heads))
    fuse = fuse_project(folder, small_project, {"lookedup": {"source": "fuse", "model": str(folder / "model")}})
    stages.encode(fuse, "lookedup", "all").run()
    stages.neighbours(fuse, "lookedup").run()
    stages.export_lookup(fuse, "lookedup", "all").run()
    return fuse


@pytest.mark.parametrize("pooling", ["refs", "paired", "max", "mean"])
def test_blocks_equal_those_of_the_pipeline(project: Project, pooling: Pooling) -> None:
    """Compare images with 1 to 7 captions, a batch of one, float32 and float64."""
    lookup = open_lookup(project.folder("exports", "all", "lookup", "lookedup"), verify=True)
    fuse = stages.open_label(project, "lookedup", "all")
    corpus, random = project.corpus, np.random.default_rng(0)
    for count in (1, 3, 64):
        rows, columns = random.integers(0, len(corpus), (2, count))
        block = lookup.block(rows, columns, pooling=pooling, dtype=np.float64)
        images = corpus.image[rows]
        if pooling == "paired":
            from relabel.corpus import References

            references = References.single(rows.astype(np.int32))
        else:
            references = corpus.references(images)
        expected = fuse.block(references, columns.astype(np.int32), pooling)
        assert block == pytest.approx(expected, abs=1e-9)
        assert lookup.block(rows, columns, pooling=pooling) == pytest.approx(expected, abs=1e-6)


def test_neighbours_are_exported(project: Project) -> None:
    lookup = open_lookup(project.folder("exports", "all", "lookup", "lookedup"))
    rows, scores, _ = lookup.neighbours([0, 5], 3)
    fuse = stages.open_label(project, "lookedup", "all")
    from relabel.corpus import References

    expected = fuse.pairs(References.single(np.repeat([0, 5], 3).astype(np.int32)), rows.reshape(-1).astype(np.int32))
    assert scores.reshape(-1) == pytest.approx(expected, abs=1e-6)
    assert lookup.about.kind == "others"
    assert lookup.about.params["fuse"]["heads"]["single"] == [[0, "max"], [1, "max"], [2, "max"]]


def test_small_trees_are_bit_identical_to_the_pipeline() -> None:
    head = fitted_head(tuple(Feature("a", look) for look in ("max", "second", "mean")), 5)
    random = np.random.default_rng(2)
    values = random.random((40_000, 3)) * 3 - 1
    thresholds = head.trees.values[head.trees.nodes[:, 0] == 1]
    values[: len(thresholds), 1] = thresholds  # values equal to a threshold go left
    expected = np.full(len(values), 0.25)
    add_trees(head.trees, values, expected)
    small = SmallTrees.of(*head.trees, features=3)
    out = np.full(len(values), 0.25)
    small.add(list(values.T), out)
    assert np.array_equal(out, expected)


def test_a_larger_tree_is_refused(tmp_path: Path) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    from relabel.sources.fuse.model import export_trees

    random = np.random.default_rng(0)
    with threadpool_limits(1):
        values = random.random((500, 2))
        fitted = HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=12, min_samples_leaf=2)
        trees = export_trees(fitted.fit(values, values.sum(axis=1)))
    with pytest.raises(ValueError, match="12 leaves; 8 are read"):
        SmallTrees.of(*trees, features=2)


def test_a_part_without_lookup_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="part far of this fuse has no lookup: it scores pair by pair"):
        write_others(small_fuse(), Work(tmp_path))


def test_a_part_that_scores_pair_by_pair_is_refused(small_project: Project, tmp_path: Path) -> None:
    head = Head((Feature("meteor", "refs"),), 0.0, np.array([1.0]))
    write_fuse_model(tmp_path, FuseModel({"meteor": Part("meteor", "pairs", True, {})}, {"set": head, "single": head}))
    project = fuse_project(tmp_path, small_project, {"slow": {"source": "fuse", "model": str(tmp_path)}})
    with pytest.raises(UsageError, match="scores pair by pair"):
        stages.export_lookup(project, "slow", "all").run()
