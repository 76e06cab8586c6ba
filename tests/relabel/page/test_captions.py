"""Contract: a page has all captions of a split, or those of complete images drawn by a seed; captions and images that
the page lacks have position -1."""

from __future__ import annotations

import numpy as np
import pytest

from relabel.corpus.table import Caption, Corpus
from relabel.page.captions import choose_captions


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """30 images with 1 to 4 captions in three splits."""
    captions = []
    for image in range(30):
        split = ("train", "val", "test")[image // 10]
        captions += [Caption(f"c:{image}-{i}", f"i:{image}", split, f"text {i}") for i in range(1 + image % 4)]
    return Corpus.from_captions(captions)


def test_a_split_that_fits_is_complete(corpus: Corpus) -> None:
    rows = corpus.rows(["val"])
    page = choose_captions(corpus, rows)
    assert page.rows.tolist() == list(rows)
    assert page.images.tolist() == list(corpus.images(["val"]))
    for number, row in enumerate(page.rows.tolist()):
        assert page.images[page.image[number]] == corpus.image[row]
    for i, image in enumerate(page.images.tolist()):
        numbers = range(int(page.starts[i]), int(page.starts[i + 1]))
        assert [int(page.rows[n]) for n in numbers] == list(range(corpus.indptr[image], corpus.indptr[image + 1]))


def test_a_larger_split_is_sampled_by_image(corpus: Corpus) -> None:
    rows = corpus.rows(["train"])
    page = choose_captions(corpus, rows, most=12)
    assert 9 <= len(page) <= 12  # no image has more than four captions
    assert set(page.rows.tolist()) == {r for i in page.images for r in range(corpus.indptr[i], corpus.indptr[i + 1])}
    assert choose_captions(corpus, rows, most=12).rows.tolist() == page.rows.tolist()
    assert choose_captions(corpus, rows, most=12, seed=1).rows.tolist() != page.rows.tolist()
    assert len(choose_captions(corpus, rows, most=0).images) == 1


def test_positions_invert_rows_and_images(corpus: Corpus) -> None:
    page = choose_captions(corpus, corpus.rows(["val"]), most=12)
    rows = np.arange(-1, len(corpus), dtype=np.int32)
    expected = [page.rows.tolist().index(row) if row in page.rows else -1 for row in rows.tolist()]
    assert page.positions(rows).tolist() == expected
    images = np.arange(-1, 30, dtype=np.int32)
    expected = [page.images.tolist().index(image) if image in page.images else -1 for image in images.tolist()]
    assert page.image_positions(images).tolist() == expected
