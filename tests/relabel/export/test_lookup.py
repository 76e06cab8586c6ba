"""Contract: a lookup is an artefact. It records its inputs and is written from shards with bounded memory. A
label without a lookup is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.export.formats import in_folder, with_captions, with_params

from relabel import stages
from relabel.config import load_config
from relabel.core.types import Pooling, Rows
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.sources.precomputed import PrecomputedParams
from relabel.stages import Session, open_corpus
from relabel.store.manifest import open_artefact
from relabel_train.lookup import Lookup, open_lookup


def exported(session: Session, label: str, split: str = "all", candidates: str | None = None) -> Lookup:
    job = stages.lookup_export(session, label, split, candidates)
    job.run()
    return open_lookup(job.out, verify=True)


@pytest.mark.parametrize("label", ["same_image", "cbow", "cider"])
def test_a_lookup_is_an_artefact_that_records_its_inputs(label: str, small_project: Session) -> None:
    job = stages.lookup_export(small_project, label, "all")
    manifest, built = job.run()
    assert not built
    assert open_artefact(job.out, "lookup") == manifest
    about, encoding = open_lookup(job.out).about, stages.encoding(small_project, label, "all").open()
    assert (about.fingerprint, about.encoding) == (manifest.fingerprint, encoding.fingerprint)
    assert about.corpus == open_corpus(small_project).digest
    assert about.params["source"] == small_project.config.sources[label].source
    assert about.params["encoding"] == encoding.config
    assert (about.neighbours is None) == (label == "same_image")


def test_float16_is_a_different_and_marked_lookup(small_project: Session, tmp_path: Path) -> None:
    half = exported(with_params(in_folder(small_project, tmp_path / "labels"), "lookup", dtype="float16"), "cbow")
    full, rows = exported(small_project, "cbow"), np.arange(len(half))
    assert (full.about.dtype, half.about.dtype) == ("float32", "float16")
    assert full.about.fingerprint != half.about.fingerprint
    assert half.about.neighbours is None  # there are none in this folder
    difference = np.abs(half.block(rows, pooling="first") - full.block(rows, pooling="first"))
    # Each number of two unit vectors changes by up to 2^-11 of itself.
    assert 0 < difference.max() < 2 * 2**-11 + 2**-22 + 1e-6
    stored = half.arrays["vectors"].astype(np.float64)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True).clip(1e-9)  # some are 0
    product = half.block(rows, pooling="first", dtype=np.float64)
    np.testing.assert_allclose(product, stored @ stored.T, atol=1e-12)


def test_neighbours_within_a_split_of_the_encoding(small_project: Session, tmp_path: Path) -> None:
    session = in_folder(small_project, tmp_path / "labels")
    config = load_config(None, ["neighbours.k=3", "neighbours.candidates=val"])
    session = replace(session, config=session.config.model_copy(update={"neighbours": config.neighbours}))
    # The neighbours are of the encoding that the parameters name, although the split has one of its own.
    stages.encoding(session, "cider", "val").run()
    stages.neighbour_table(session, "cider").run()
    lookup, val = exported(session, "cider", candidates="val"), open_corpus(session).splits["val"]
    near, scores, _ = lookup.neighbours(list(val))
    assert near.shape == (len(val), 3)
    assert val.start <= near.min() <= near.max() < val.stop
    assert (np.diff(scores, axis=1) <= 0).all()
    with pytest.raises(IndexError, match=f"row {val.stop} has no neighbours; rows {val.start} to {val.stop - 1} of"):
        lookup.neighbours([val.start, val.stop])


def check_blocks(
    session: Session, label: str, lookup: Lookup, batch: Rows, poolings: Sequence[Pooling], error: float
) -> None:
    relevance, corpus = stages.open_label(session, label, "all"), open_corpus(session)
    for pooling in poolings:
        references = References.single(batch) if pooling == "first" else corpus.references(corpus.image[batch])
        expected = relevance.block(references, batch, pooling)
        np.testing.assert_allclose(lookup.block(batch, pooling=pooling, dtype=np.float64), expected, rtol=0, atol=error)


@pytest.mark.slow
def test_blocks_of_real_captions_equal_the_pipeline(coco: Corpus, small_project: Session, tmp_path: Path) -> None:
    """Compare blocks of COCO's 25,000 test captions: siblings, repeated texts, repeated words."""
    images, rows = coco.image.tolist(), coco.splits["test"]
    captions = (Caption(f"{row}", f"{images[row]}", "test", coco.texts[row]) for row in rows)
    session = with_captions(small_project, tmp_path, captions)
    stages.encoding(session, "cider", "all").run()
    lookup = exported(session, "cider")
    for seed in range(10):
        batch = np.random.default_rng(seed).integers(0, len(open_corpus(session)), 128, dtype=np.int32)
        batch[:20] = np.minimum(batch[20:40] + 1, len(open_corpus(session)) - 1)
        check_blocks(session, "cider", lookup, batch, ("set", "max", "first"), 1e-9)


def test_blocks_of_vectors_of_images_equal_the_pipeline(small_project: Session, tmp_path: Path) -> None:
    """Compare vectors that are neither of unit length nor in the corpus's order, also of an image of six captions."""
    captions = [Caption(f"{m}-{i}", f"{m}", "train", "a dog") for m, n in enumerate((2, 6, 1, 3, 4)) for i in range(n)]
    session, rng, files = with_captions(small_project, tmp_path, captions), np.random.default_rng(3), {}
    corpus = open_corpus(session)
    for side, ids in {"images": corpus.image_ids, "captions": corpus.caption_ids}.items():
        np.save(tmp_path / f"{side}.npy", rng.normal(size=(len(ids), 5)))
        (tmp_path / f"{side}.ids.txt").write_text("\n".join(ids[::-1]), encoding="utf-8")
        files[side] = str(tmp_path / f"{side}.npy")
    sources = {"clip": PrecomputedParams(**files, pooling="set")}
    session = replace(session, config=session.config.model_copy(update={"sources": sources}))
    stages.encoding(session, "clip", "all").run()
    lookup = exported(session, "clip")
    assert (lookup.about.kind, lookup.about.pooling) == ("image_vectors", "set")
    check_blocks(session, "clip", lookup, np.array([15, 0, 7, 3, 9], np.int32), ("set", "first", "max", "mean"), 1e-6)
    # Images are named by id, and by any of their captions.
    named = lookup.rows_of_images(["coco:1", "coco:3"])
    np.testing.assert_array_equal(lookup.block(named), lookup.block(lookup.rows_of(["coco:1-5", "coco:3-2"]), named))
