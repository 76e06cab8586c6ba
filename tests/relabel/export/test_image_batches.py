"""Contract: batches of images hold the relevance of the sets of captions of their images. An anchor comes first, then
its k nearest images by this relevance, or k of its nearest ones, then random images. An image occurs once in a batch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.core.errors import UsageError
from relabel.corpus import References
from relabel.sources.wmd import WmdParams
from relabel.stages import Session, open_corpus, open_label
from relabel_train.precomputed import PrecomputedBatches, open_batches

PLAN = {"items": "images", "sampler": "neighbour", "batch_size": 8, "epochs": 2, "k": 3}


@pytest.fixture(scope="module")
def session(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return the small project with wmd, and with every caption as a neighbour of every image."""
    config, cbow = small_project.config, small_project.config.sources["cbow"]
    wmd = WmdParams(vectors=cbow.vectors, tokenizer="lower_split")  # type: ignore[attr-defined]
    wide = config.neighbours.model_copy(update={"k": 1000})
    config = config.model_copy(update={"sources": {"cbow": cbow, "wmd": wmd}, "neighbours": wide})
    session = in_folder(replace(small_project, config=config), tmp_path_factory.mktemp("images"))
    stages.encoding(session, "wmd", "all").run()
    for label in ("cbow", "wmd"):
        stages.neighbour_table(session, label, "all", "images").run()
    return session


def export(session: Session, label: str, split: str = "all", **given: Any) -> PrecomputedBatches:
    job = stages.batches_export(with_params(session, "batches", **{**PLAN, **given}), label, split)
    job.run()
    return open_batches(job.out, verify=True)


def relevance_of_images(session: Session, label: str) -> NDArray[np.float64]:
    """Compute the relevance of all images to each other by loops over pairs of captions."""
    corpus, opened = open_corpus(session), open_label(session, label, "all")
    sets = [corpus.references([m])[0] for m in range(len(corpus.image_ids))]
    rows = np.arange(len(corpus), dtype=np.int32)
    known = opened.pairs(References.single(rows), rows, "first") > 0  # has words with a vector
    out = np.empty((len(sets), len(sets)))
    for i, own in enumerate(sets):
        for j, other in enumerate(sets):
            a, b = (grid.reshape(-1) for grid in np.meshgrid(own, other, indexing="ij"))
            scores = opened.pairs(References.single(a), b, "first").reshape(len(own), len(other))
            if label == "wmd":  # W(X, Y) of Kim et al., Eq. 13, divided by its largest possible value
                apart = 1 - scores[np.ix_(known[own], known[other])]
                # A caption without known words counts as the mean of the others.
                sides = [apart.min(axis=axis).mean() if apart.size else 1 for axis in (1, 0)]
                out[i, j] = 1 - np.average(sides, weights=(len(own), len(other)))
            else:
                out[i, j] = scores.max()
    return out


@pytest.mark.parametrize("label", ["wmd", "cbow"])
def test_blocks_and_nearest_images_are_those_of_loops(session: Session, label: str) -> None:
    plan, expected, corpus = export(session, label), relevance_of_images(session, label), open_corpus(session)
    anchors: list[int] = []
    assert (plan.about.items, plan.about.pooling) == ("images", "set" if label == "wmd" else "max")
    for number in range(len(plan)):
        rows, block, same = plan[number]
        images = corpus.image[rows]
        assert len(set(images)) == len(images) == 8
        assert rows.tolist() == corpus.indptr[images].tolist(), "the first caption stands for its image"
        assert (same == np.eye(8, dtype=bool)).all()
        np.testing.assert_allclose(block, expected[np.ix_(images, images)], atol=1e-6)
        anchor, near, others = images[0], images[1:4], np.delete(np.arange(60), images[:4])
        anchors.append(int(anchor))
        scores = expected[anchor]
        assert (np.diff(scores[near]) <= 1e-6).all()
        assert scores[near].min() >= scores[others].max() - 1e-6
    assert len(set(anchors)) == len(anchors) == 2 * (60 // 8)


def test_the_k_are_drawn_from_the_nearest(session: Session) -> None:
    """Check that they are among the `nearest`, and not always the k first of these."""
    plan, scores = export(session, "wmd", nearest=10, epochs=4), relevance_of_images(session, "wmd")
    np.fill_diagonal(scores, -1)
    drawn = []
    for number in range(len(plan)):
        anchor, *near = plan.images(number)[:4].tolist()
        drawn.append(sorted(int((scores[anchor] > scores[anchor, image] + 1e-6).sum()) for image in near))
    assert max(map(max, drawn)) in range(5, 10)
    assert drawn.count([0, 1, 2]) < len(drawn) / 2
    with pytest.raises(UsageError, match="nearest is 2"):
        export(session, "wmd", nearest=2)


def test_random_batches_hold_every_image_of_a_split_once(session: Session) -> None:
    plan, corpus = export(session, "cbow", "train", sampler="random", drop_last=False), open_corpus(session)
    for epoch in range(2):
        images = np.concatenate([plan.images(number) for number in plan.epoch(epoch)])
        assert sorted(images.tolist()) == list(corpus.images(["train"]))
    assert "images" in plan.folder.name
    with pytest.raises(UsageError, match="20 images are too few for a batch of 21"):
        export(session, "cbow", "train", sampler="random", batch_size=21)


def test_an_image_without_a_label_is_in_no_batch(session: Session, tmp_path: Path) -> None:
    from tests.relabel.export.test_precomputed import CORPUS, work_of, write

    failed = int(CORPUS.indptr[2]) + 1
    plan, metadata = write(tmp_path, work_of("vectors", "max", failed=(failed,), items="images", batch_size=2))
    assert metadata["left_out"] == 1
    assert sorted({int(image) for n in range(len(plan)) for image in plan.images(n)}) == [0, 1, 3, 4, 5, 6, 7]
