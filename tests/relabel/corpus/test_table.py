"""Contract: a corpus has one row per caption, sorted by split and image id in natural order; the captions of an image
are in the order of the file, or of their positions. Invalid captions are refused with their place. The digest depends
on the values only.

Contract: captions that repeat a text of their image are counted, and left out only where that is asked for.

Contract: ranks sort as natural keys, for ids of any form and in any order.

Contract: every COCO image gets Karpathy's split, from the ids of ECCV Caption and CxC. An unknown id is refused,
never dropped.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.corpus import REFERENCES, SCHEMA, SPLITS, Corpus, build
from relabel.corpus.build import Caption, arrange, natural_key, natural_rank
from relabel.corpus.splits import split_by_ids


def make(images: int = 13, seed: int = 0) -> list[Caption]:
    """Make captions of images 0, 1, ... with 1 to 7 captions each, shuffled."""
    draw = random.Random(seed)
    captions = []
    for image in range(images):
        split = SPLITS[image % 3]
        for k in range(draw.randint(1, 7)):
            number = 1000 - 7 * image - k
            captions.append(Caption(f"d:{number}", f"d:{image}", split, f"text {number}", f"f:{number}"))
    draw.shuffle(captions)
    return captions


@pytest.mark.parametrize("positions", [False, True])
def test_images_are_in_natural_order_and_their_captions_in_that_of_the_file(positions: bool) -> None:
    captions = make()
    if positions:
        captions = [c._replace(position=int(c.caption_id[2:]) % 3) for c in captions]
    corpus = Corpus.from_captions(captions)
    # The sort is stable.
    expected = sorted(captions, key=lambda c: (SPLITS.index(c.split), int(c.image_id[2:]), c.position))
    assert corpus.table.schema == SCHEMA
    assert corpus.caption_ids == [c.caption_id for c in expected]
    assert corpus.texts == [c.text for c in expected]
    assert corpus.table["row"].to_pylist() == list(range(len(expected)))
    images = list(dict.fromkeys(caption.image_id for caption in expected))
    for row, caption in enumerate(expected):
        position = sum(c.image_id == caption.image_id for c in expected[:row])
        values = [corpus.table[name][row].as_py() for name in ("image_id", "image", "split", "position")]
        assert values == [caption.image_id, images.index(caption.image_id), caption.split, position]
    assert corpus.image_ids == images
    assert corpus.row_of[expected[5].caption_id] == 5
    assert corpus.image_of[images[-1]] == len(images) - 1


BAD = {
    "caption id d:1 appears twice (first: f:1)": Caption("d:1", "d:9", "test", "x", "f:9"),
    "the caption id is blank": Caption("d:\t", "d:1", "test", "x", "f:9"),
    "the image id is blank. Add the id of the image": Caption("d: #0", "d: ", "test", "x", "f:9"),
    "the image id is blank": Caption("", "", "test", "x", "f:9"),
    "caption d:2 is empty": Caption("d:2", "d:1", "test", " \n\u00a0", "f:9"),
    "ids with a zero character": Caption("d:\0", "d:1", "test", "x", "f:9"),
    "ids with a zero character or more than 10,000 characters": Caption("d" * 10_001, "1", "test", "x", "f:9"),
    "not Unicode text": Caption("d:2", "d:1", "test", "\ud800", "f:9"),
    "unknown split 'dev'": Caption("d:2", "d:1", "dev", "x", "f:9"),
    "image d:1 is in two splits, test and val": Caption("d:2", "d:1", "val", "x", "f:9"),
}


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("message", BAD)
def test_faults_are_found_in_any_chunk(
    message: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_CHUNK", 3)
    captions = [Caption("d:1", "d:1", "test", "x", "f:1")]
    captions += [Caption(f"d:{n}", f"d:{n}", "test", "x", f"f:{n}") for n in range(10, 18)]
    captions.insert(place + 1, BAD[message])
    # A later fault is not reported.
    captions.append(Caption("d:1", "d:1", "test", "x", "f:99"))
    with pytest.raises(CheckError, match=f"^f:9: {re.escape(message)}"):
        arrange(captions, tmp_path / "spill")
    assert not list(tmp_path.iterdir())


def test_digest_depends_on_values_and_not_on_chunks() -> None:
    corpus = Corpus.from_captions(make())
    pieces = [corpus.table.slice(a, 7) for a in range(0, len(corpus), 7)]
    assert Corpus.from_table(pa.concat_tables(pieces)).digest == corpus.digest
    by_image = sorted(make(), key=lambda c: c.image_id, reverse=True)
    assert Corpus.from_captions(by_image).digest == corpus.digest
    digests = {corpus.digest}
    for field, value in (("text", "other"), ("image_id", "d:99"), ("caption_id", "d:99999"), ("split", "val")):
        captions = [c for c in make() if c.image_id != "d:0"] + [Caption("d:5000", "d:0", "train", "x")]
        captions[-1] = captions[-1]._replace(**{field: value})
        digests.add(Corpus.from_captions(captions).digest)
    assert len(digests) == 5


def test_texts_that_an_image_has_already_are_found_and_dropped() -> None:
    # Few texts, many images: equal texts of different images are no repeats.
    captions = [c._replace(text=f"text {int(c.caption_id[2:]) % 3}") for c in make()]
    kept, dropped = arrange(captions), arrange(captions, drop_repeats=True)
    seen: set[tuple[str, str]] = set()
    repeats = [n for n, c in enumerate(captions) if (c.image_id, c.text) in seen or seen.add((c.image_id, c.text))]
    assert (kept.repeats.tolist(), dropped.repeats.tolist()) == (repeats, repeats) != ([], [])
    assert len(kept) == len(captions)
    without = Corpus.from_captions(c for n, c in enumerate(captions) if n not in repeats)
    assert Corpus.from_table(dropped.table(range(len(dropped)))).digest == without.digest
    # A row that is there twice, with its id, is refused or dropped.
    twice = [Caption("d:1", "d:1", "test", "x", "f:1"), Caption("d:1", "d:1", "test", "x", "f:2")]
    assert len(arrange(twice, drop_repeats=True)) == 1
    with pytest.raises(CheckError, match="f:2: caption id d:1 appears twice"):
        arrange(twice)


def test_splits_are_ranges_of_rows() -> None:
    corpus = Corpus.from_captions(make())
    column = corpus.table["split"].to_pylist()
    for split in SPLITS:
        assert list(corpus.rows([split])) == [i for i, s in enumerate(column) if s == split]
        images = {corpus.table["image"][i].as_py() for i in corpus.rows([split])}
        assert set(corpus.images([split])) == images
    assert corpus.rows(["val", "test"]) == range(corpus.rows(["val"]).start, len(corpus))
    assert corpus.rows(SPLITS) == range(len(corpus))
    with pytest.raises(UsageError, match="not adjacent"):
        corpus.rows(["train", "test"])
    with pytest.raises(UsageError, match="no split dev"):
        corpus.rows(["dev"])


@pytest.mark.parametrize("first", [None, 1, REFERENCES])
def test_references_are_the_first_captions_of_an_image(first: int | None) -> None:
    corpus = Corpus.from_captions(make())
    images = [4, 0, 0, 12]
    sets = corpus.references(images, first)
    assert len(sets) == 4
    for m, image in enumerate(images):
        rows = [i for i in range(len(corpus)) if corpus.image[i] == image]
        assert sets[m].tolist() == rows[:first]
    assert sets.rows.dtype == np.int32
    assert len(corpus.references([])) == 0


@given(st.lists(st.text("ab:#-0129²٣", min_size=1, max_size=6), min_size=1, max_size=30))
def test_ranks_sort_as_keys(ids: list[str]) -> None:
    rank = natural_rank(pa.array(ids))
    for a, x in zip(rank, ids, strict=True):
        for b, y in zip(rank, ids, strict=True):
            assert (a < b) == (natural_key(x) < natural_key(y))
            assert (a == b) == (x == y)


def ids(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


CAPTIONS, IMAGES = ids(10, 11, 12, 13, 14), ids(5, 3, 5, 4, 9)


def test_test_follows_captions_val_follows_images_train_is_the_rest() -> None:
    split = split_by_ids(CAPTIONS, IMAGES, ids(12, 10), ids(9))
    assert dict(split) == {3: "train", 4: "train", 5: "test", 9: "val"}


def test_mismatched_ids_are_refused() -> None:
    with pytest.raises(CheckError, match="test caption 99 is not in the annotations, nor are 0 others of 2"):
        split_by_ids(CAPTIONS, IMAGES, ids(12, 99), ids(9))
    with pytest.raises(CheckError, match="val image 2 is not in the annotations, nor are 1 others of 3"):
        split_by_ids(CAPTIONS, IMAGES, ids(12), ids(2, 9, 77))
