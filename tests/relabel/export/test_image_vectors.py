"""Contract: the lookup of vectors of images and captions equals an explicit loop over the files of vectors, for every
pooling.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from relabel import stages
from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.stages import Project
from relabel_train.lookup import Lookup, open_lookup

SIZES = (2, 6, 1, 3, 3, 2, 4)  # captions per image; an image has at most five references


def clip_lookup(folder: Path) -> tuple[Lookup, Corpus, dict[str, Any]]:
    """Return a lookup of random vectors that are not of unit length and not in the corpus's order, and the vectors."""
    entries = [Caption(f"x:{m}-{i}", f"x:{m}", "train", "a dog") for m, n in enumerate(SIZES) for i in range(n)]
    corpus, rng, vector_of = Corpus.from_captions(entries), np.random.default_rng(3), {}
    ids_of = {"images": corpus.image_ids, "captions": corpus.caption_ids}
    for side, ids in ids_of.items():
        vectors = rng.normal(size=(len(ids), 5))
        np.save(folder / f"{side}.npy", vectors[::-1])
        (folder / f"{side}.ids.txt").write_text("\n".join(ids[::-1]), encoding="utf-8")
        vector_of |= dict(zip(ids, vectors, strict=True))
    sources = {"clip": {"source": "precomputed", **{side: str(folder / f"{side}.npy") for side in ids_of}}}
    config = load_config(None, [f"sources={json.dumps(sources)}", "encode.rows_per_shard=8"])
    project = Project(config, Runtime(threads=1), folder / "labels")
    project.__dict__["corpus"] = corpus  # the value of the cached property
    stages.encode(project, "clip", "train").run()
    job = stages.export_lookup(project, "clip", "train")
    job.run()
    return open_lookup(job.out, verify=True), corpus, vector_of


def cosine(a: Any, b: Any) -> float:
    return float(sum(a * b) / (sum(a * a) * sum(b * b)) ** 0.5)


def expected(corpus: Corpus, vector_of: dict[str, Any], row: int, column: int, pooling: str) -> float:
    target, image = vector_of[corpus.caption_ids[column]], corpus.image[row]
    if pooling == "set":
        return cosine(vector_of[corpus.image_ids[image]], target)
    rows = [row] if pooling == "first" else range(corpus.indptr[image], corpus.indptr[image + 1])[:5]
    scores = [cosine(vector_of[corpus.caption_ids[r]], target) for r in rows]
    return max(scores) if pooling == "max" else sum(scores) / len(scores)


def test_blocks_equal_a_loop_over_the_files_of_vectors(tmp_path: Path) -> None:
    lookup, corpus, vector_of = clip_lookup(tmp_path)
    assert (lookup.about.kind, lookup.about.pooling) == ("image_vectors", "set")
    rows, columns = [20, 0, 7, 3, 9], [1, 20, 9, 4]
    poolings: Any = (None, "set", "first", "max", "mean")
    for pooling in poolings:
        loop = [[expected(corpus, vector_of, r, c, pooling or "set") for c in columns] for r in rows]
        np.testing.assert_allclose(lookup.block(rows, columns, pooling), loop, atol=1e-6)
    # Images are named by id, and by any of their captions.
    named = lookup.rows_of_images(["x:1", "x:3"])
    np.testing.assert_array_equal(lookup.block(named), lookup.block(lookup.rows_of(["x:1-5", "x:3-2"]), named))
