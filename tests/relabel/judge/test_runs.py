"""Contract: a run in TREC's format gives the figures of the matrix with its scores, those of ir_measures where it has
them; ids may lack the prefix of the dataset, and captions after the fifth of an image may be left out. A figure is not
computed from lists that are too short for it, and a fault of a file is named with its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.today import coco_captions

from relabel.core.errors import CheckError, RelabelError, UsageError
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.judge.audit import compare_positives, corrected_positives
from relabel.judge.runs import read_run
from relabel_train.metrics.scores import Direction

Array = NDArray[np.float64]
SIDES: dict[Direction, tuple[str, str]] = {"i2t": ("image", "caption"), "t2i": ("caption", "image")}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Return the captions of 12 val and 24 test images of COCO, of which one has a sixth caption."""
    given = coco_captions({"val": 12, "test": 24})
    captions = [Caption(f"coco:{c['caption_id']}", f"coco:{c['image_id']}", c["split"], c["text"]) for c in given]
    last = captions[-1]
    return Corpus.from_captions([*captions, Caption("coco:0", last.image_id, "test", "one more caption")])


@pytest.fixture(scope="module")
def scores(corpus: Corpus) -> Array:
    """Return distinct scores, many of which are equal in float32. Own captions have higher ones than others."""
    image = corpus.image[corpus.split_rows("test")]
    values = np.random.default_rng(0).normal(size=(24, len(image))) + 0.4 * (np.unique(image)[:, None] == image)
    values[-1, -1] = 5  # the sixth caption is listed
    return 1 - 1e-9 * np.argsort(np.argsort(-values, axis=None)).reshape(values.shape)


def ids_of(corpus: Corpus) -> dict[str, list[str]]:
    rows = corpus.split_rows("test")
    images = corpus.images_of(rows)
    return {
        "image": corpus.image_ids[images.start : images.stop],
        "caption": corpus.caption_ids[rows.start : rows.stop],
    }


def lines(corpus: Corpus, scores: Array, direction: Direction, depth: int | None = None) -> list[tuple[str, ...]]:
    """Return the columns of the lines of a run, with the best candidates of each query."""
    queries, candidates = (ids_of(corpus)[side] for side in SIDES[direction])
    found = []
    for query, row in zip(queries, scores if direction == "i2t" else scores.T, strict=True):
        for rank, n in enumerate(np.argsort(-row)[:depth].tolist(), 1):
            found.append((query, "Q0", candidates[n], str(rank), repr(float(row[n])), "me"))
    return found


def write(path: Path, rows: Sequence[Sequence[str]], space: str = " ") -> Path:
    # Programs also write spaces around a line, and line ends of Windows.
    ends = (" ", " \r\n") if space != " " else ("", "\n")
    path.write_bytes("".join(ends[0] + space.join(row) + ends[1] for row in rows).encode())
    return path


def figures(corpus: Corpus, path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Return the figures of a file with 40 false negatives."""
    rows = corpus.split_rows("test")
    run = read_run(path, corpus, rows)
    owner = corpus.image[rows.start : rows.stop][run.kept].astype(np.int64)
    owner -= owner[0]
    other = np.argwhere(np.arange(24)[:, None] != owner)
    image, caption = other[np.random.default_rng(1).choice(len(other), 40, replace=False)].T
    return compare_positives(run, corrected_positives(image, caption, owner), owner, 1)


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
@pytest.mark.parametrize("prefix", [True, False])
def test_a_run_has_the_figures_of_its_matrix(
    direction: Direction, prefix: bool, corpus: Corpus, scores: Array, tmp_path: Path
) -> None:
    np.save(tmp_path / "scores.npy", scores)
    rows = lines(corpus, scores, direction)
    if not prefix:
        rows = [(query[5:], "Q0", candidate[5:], *rest) for query, _, candidate, *rest in rows]
    np.random.default_rng(2).shuffle(rows)
    expected, queries, _ = figures(corpus, tmp_path / "scores.npy")
    given = figures(corpus, write(tmp_path / "mine.run", rows, " " if prefix else " \t "))
    assert given[0] == [one for one in expected if one["direction"] == direction]
    assert given[1] == [one for one in queries if one["direction"] == direction] != []
    assert given[2] == []


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_usual_recall_is_the_success_of_ir_measures(
    direction: Direction, corpus: Corpus, scores: Array, tmp_path: Path
) -> None:
    path = write(tmp_path / "mine.txt", lines(corpus, 1e6 * (scores - 1), direction, 15))
    rows = corpus.split_rows("test")
    pairs = [(corpus.image_ids[corpus.image[row]], corpus.caption_ids[row]) for row in rows]
    pairs = pairs if direction == "i2t" else [(caption, image) for image, caption in pairs]
    measures = [ir_measures.Success @ k for k in (1, 5, 10)]
    qrels = [ir_measures.Qrel(query, candidate, 1) for query, candidate in pairs]
    found = ir_measures.calc_aggregate(measures, qrels, ir_measures.read_trec_run(str(path)))
    given = {record["figure"]: record["usual"] for record in figures(corpus, path)[0]}
    for k, measure in zip((1, 5, 10), measures, strict=True):
        assert given[f"R@{k}"] == pytest.approx(100 * found[measure], abs=0.006)
    assert 0 < given["R@1"] < given["R@10"]


def test_lists_that_are_too_short_leave_figures_out(corpus: Corpus, scores: Array, tmp_path: Path) -> None:
    complete, queries, _ = figures(corpus, write(tmp_path / "all.run", lines(corpus, scores, "i2t")))
    short, listed, notes = figures(corpus, write(tmp_path / "short.run", lines(corpus, scores, "i2t", 7)))
    assert short == [record for record in complete if record["figure"] in ("R@1", "R@5")]
    assert [note.split(" is left out")[0] for note in notes] == ["i2t R@10", "i2t mAP@R"]
    assert "10 candidates of a query, and 24 queries have fewer" in notes[0]
    # Ranks after the seventh are unknown.
    expected = {q["query"]: (q["rank"] if q["rank"] <= 7 else None, q["corrected_rank"]) for q in queries}
    expected = {query: ranks for query, ranks in expected.items() if ranks[1] <= 7}
    assert {q["query"]: (q["rank"], q["corrected_rank"]) for q in listed} == expected
    assert None in {rank for rank, _ in expected.values()}


@pytest.mark.parametrize("name", ["first.npy", "first.run"])
def test_captions_after_the_fifth_may_be_left_out(name: str, corpus: Corpus, scores: Array, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "first.npy":
        np.save(path, scores[:, :-1])
    else:
        write(path, [row for row in lines(corpus, scores, "t2i") if row[0] != "coco:0"])
    run = read_run(path, corpus, corpus.split_rows("test"))
    assert run.scores.shape == (24, 120)
    assert run.kept.tolist() == [True] * 120 + [False]
    order = np.argsort(run.scores.lists("t2i", np.arange(120)), axis=1)
    np.testing.assert_array_equal(order, np.argsort(scores[:, :-1].T, axis=1))
    assert len(run.candidates["t2i"]) == 120


def test_faults_of_a_run_are_named(corpus: Corpus, scores: Array, tmp_path: Path) -> None:
    good, val = lines(corpus, scores, "t2i", 3), corpus.caption(0)
    assert val.split == "val"

    def changed(column: int, value: str) -> list[tuple[str, ...]]:
        return [(*row[:column], value, *row[column + 1 :]) if i == 4 else row for i, row in enumerate(good)]

    first = good[0][0]
    wrong: dict[str, tuple[list[tuple[str, ...]], type[RelabelError], str]] = {
        "unknown query": (changed(0, "coco:no"), CheckError, "line 5: 1 of 363 lines have a query outside the"),
        "other split": (changed(2, val.image_id), CheckError, f"candidate outside the images .*First: {val.image_id}"),
        "missing": (good[3:], CheckError, f"1 of 121 queries have no candidates; first {first}"),
        "nan": (changed(4, "nan"), CheckError, "line 5: a score is not a finite number"),
        "text": (changed(4, "best"), CheckError, "not a run in TREC's format .*best"),
        "twice": ([*good, good[4]], CheckError, f"line {len(good) + 1}: {good[4][0]} and .* have an earlier line"),
        "five columns": ([row[:5] for row in good], CheckError, "not a run in TREC's format"),
        "empty": ([], CheckError, "the file has no lines"),
    }
    for name, (rows, kind, message) in wrong.items():
        with pytest.raises(kind, match=message):
            read_run(write(tmp_path / f"{name}.run", rows), corpus, corpus.split_rows("test"))


def test_a_direction_that_is_not_clear_is_an_error(tmp_path: Path) -> None:
    corpus = Corpus.from_captions([Caption(f"m:{i}", f"m:{i}", "test", f"caption {i}") for i in range(3)])
    rows = [(f"m:{i}", "Q0", f"m:{j}", "1", str(i - j), "me") for i in range(3) for j in range(3)]
    with pytest.raises(UsageError, match="same ids"):
        read_run(write(tmp_path / "one.run", rows), corpus, range(3))
