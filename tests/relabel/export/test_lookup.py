"""Contract: a lookup is an artefact. It records its inputs and is written from shards with bounded memory. A
lookup that would not be exact is refused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.corpus import SCHEMA, Corpus, References
from relabel.stages import Project
from relabel.store.manifest import open_artefact
from relabel_train.lookup import open_lookup


@pytest.mark.parametrize("label", ["same_image", "cbow", "cider"])
def test_a_lookup_is_an_artefact_that_records_its_inputs(label: str, small_project: Project) -> None:
    job = stages.export_lookup(small_project, label, "all")
    manifest, built = job.run()
    assert not built
    assert open_artefact(job.out, "lookup") == manifest
    about = open_lookup(job.out).about
    encoding = stages.encode(small_project, label, "all").open()
    assert (about.fingerprint, about.encoding, about.corpus) == (
        manifest.fingerprint,
        encoding.fingerprint,
        small_project.corpus.digest,
    )
    assert {f"{n}.npy" for n in about.arrays} | {"lookup.json"} == set(manifest.files)
    for name, entry in about.arrays.items():
        assert entry.sha256 == manifest.files[f"{name}.npy"].sha256
    assert about.params["source"] == small_project.config.sources[label].source
    assert about.params["encoding"] == encoding.config
    assert (about.neighbours is None) == (label == "same_image")


def test_float16_is_a_different_and_marked_lookup(small_project: Project, tmp_path: Path) -> None:
    project = with_params(in_folder(small_project, tmp_path / "labels"), "lookup", dtype="float16")
    job = stages.export_lookup(project, "cbow", "all")
    job.run()
    full_precision, half = open_lookup(small_project.folder("exports", "all", "lookup", "cbow")), open_lookup(job.out)
    assert (full_precision.about.dtype, half.about.dtype) == ("float32", "float16")
    assert full_precision.about.fingerprint != half.about.fingerprint
    rows = np.arange(len(full_precision))
    difference = np.abs(half.block(rows, pooling="first") - full_precision.block(rows, pooling="first"))
    # Each number of two unit vectors changes by up to 2^-11 of itself.
    assert 0 < difference.max() < 2 * 2**-11 + 2**-22 + 1e-6
    stored = np.load(job.out / "vectors.npy").astype(np.float64)
    product = half.block(rows, pooling="first", dtype=np.float64)
    np.testing.assert_allclose(product, stored @ stored.T, atol=1e-12)


def test_neighbours_within_a_split_of_the_encoding(small_project: Project, tmp_path: Path) -> None:
    project = in_folder(small_project, tmp_path / "labels")
    config = load_config(None, ["neighbours.k=3", "neighbours.candidates=val", "neighbours.split=all"])
    near = project.config.model_copy(update={"neighbours": config.neighbours})
    project = replace(project, config=near)
    # The neighbours are of the encoding that the parameters name, although the split has one of its own.
    stages.encode(project, "cider", "val").run()
    stages.neighbours(project, "cider").run()
    job = stages.export_lookup(project, "cider", "all", "val")
    job.run()
    lookup, val = open_lookup(job.out), project.corpus.splits["val"]
    rows_found, scores, _ = lookup.neighbours(list(val))
    assert rows_found.shape == (len(val), 3)
    assert val.start <= rows_found.min() <= rows_found.max() < val.stop
    assert (np.diff(scores, axis=1) <= 0).all()
    with pytest.raises(
        IndexError, match=f"row {val.stop} has no neighbours; rows {val.start} to {val.stop - 1} of 'val'"
    ):
        lookup.neighbours([val.start, val.stop])


def cider_of(corpus: Corpus, folder: Path) -> Project:
    """Return a project of one label, cider, encoded and exported."""
    settings = ["ingest.tokenizer=none", "sources={cider: {source: cider, tokenizer: lower_split}}"]
    project = Project(load_config(None, settings), Runtime(threads=2), folder)
    project.__dict__["corpus"] = corpus  # the value of the cached property
    stages.encode(project, "cider", "all").run()
    stages.export_lookup(project, "cider", "all").run()
    return project


@pytest.mark.slow
def test_blocks_of_real_captions_equal_the_pipeline(coco: Corpus, tmp_path: Path) -> None:
    """Compare blocks of COCO's 25,000 test captions: siblings, repeated texts, repeated words."""
    rows = coco.splits["test"]
    images = coco.images(["test"])
    table = coco.table.slice(rows.start, len(rows))
    table = table.set_column(0, "row", pa.array(np.arange(len(rows), dtype=np.int32)))
    image = table["image"].to_numpy() - np.int32(images.start)
    project = cider_of(Corpus.from_table(table.set_column(3, "image", pa.array(image)).cast(SCHEMA)), tmp_path)
    lookup, corpus = open_lookup(project.folder("exports", "all", "lookup", "cider"), verify=True), project.corpus
    relevance, rng = stages.open_label(project, "cider", "all"), np.random.default_rng(0)
    for _ in range(10):
        batch = rng.integers(0, len(corpus), 128, dtype=np.int32)
        batch[:20] = np.minimum(batch[20:40] + 1, len(corpus) - 1)
        for pooling, sets in (
            ("set", corpus.references(corpus.image[batch])),
            ("max", corpus.references(corpus.image[batch])),
            ("first", References.single(batch)),
        ):
            expected = relevance.block(sets, batch, pooling)  # type: ignore[arg-type]
            block = lookup.block(batch, pooling=pooling, dtype=np.float64)  # type: ignore[arg-type]
            np.testing.assert_allclose(block, expected, rtol=0, atol=1e-9)
