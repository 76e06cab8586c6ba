"""Contract: judged pairs are scored by the papers' protocol, each task as an explicit loop does; impossible pairs are
reported.

SITS: the first five captions of the image, the judged caption included by default. STS: both orders are averaged if the
source is not symmetric. SIS: every caption of one image against the set of the other, pooled over both, in both orders.

Pairs of a file of scores are identified by ids or texts. Missing pairs are refused unless they are allowed, and errors
name file and line.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.judge.conftest import Odd
from tests.relabel.judge.rated_pairs import judged as judged_set

from relabel.core.errors import CheckError
from relabel.core.numeric.statistics import pearson, round_relative
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.datasets.cxc import HumanScores, Task, human_scores
from relabel.datasets.evaluation_sets import Judgements
from relabel.judge import JudgeParams, cxc
from relabel.judge.cxc import read_cxc, score_cxc, sibling_std
from relabel.judge.cxc_figures import PairScores, compare
from relabel.judge.report import JudgedLabel
from relabel.judge.scores import read_cxc_scores, read_pair_scores
from relabel.judge.tables import cxc_report
from relabel.store.workdir import Work

REDUCE = {"max": max, "mean": lambda v: sum(v) / len(v), "set": lambda v: sum(v) / len(v), "first": lambda v: v[0]}


def judged(task: Task, pairs: list[tuple[str, str]]) -> HumanScores:
    left, right = (list(side) for side in zip(*pairs, strict=True))
    method = {"sts": "c2c_isim", "sits": "c2i_intrasim", "sis": "i2i_csim"}[task]
    return HumanScores(task, "test", left, right, np.linspace(0, 5, len(pairs)), [method] * len(pairs))


def by_hand(corpus: Corpus, task: Task, left: str, right: str, pooling: Pooling, own: bool) -> float:
    relevance, reduce = Odd(corpus, range(len(corpus))), REDUCE[pooling]

    def captions(image: str) -> list[int]:
        return [r for r, i in enumerate(corpus.image) if corpus.image_ids[i] == image][:5]

    def one(reference: int, caption: int) -> float:
        return float(relevance.one(np.array([reference]), np.array([caption]))[0])

    def sets(a: str, b: str) -> float:
        inner = [reduce([one(r, c) for r in captions(a)]) for c in captions(b)]
        return reduce(inner)

    if task == "sis":
        return (sets(left, right) + sets(right, left)) / 2
    row = corpus.caption_ids.index(left)
    if task == "sits":
        references = [r for r in captions(right) if own or r != row]
        return reduce([one(r, row) for r in references]) if references else float("nan")
    other = corpus.caption_ids.index(right)
    return (one(row, other) + one(other, row)) / 2


@pytest.mark.parametrize("pooling", ["max", "mean", "set", "first"])
@pytest.mark.parametrize("own", [True, False])
def test_every_task_equals_its_definition(
    work: Work, pooling: Pooling, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus.from_captions(  # images with 1, 2, 5, 6 and 7 captions
        Caption(f"coco:{10 * image + k}", f"coco:{image}", "test", f"caption {k} of {image}")
        for image, count in enumerate((1, 2, 5, 6, 7), 1)
        for k in range(count)
    )
    images, captions = corpus.image_ids, [f"coco:{number}" for number in (10, 20, 21, 34, 40, 45, 50, 56)]
    pairs_of_task: dict[Task, HumanScores] = {
        "sts": judged("sts", [(a, b) for a in captions for b in captions if a < b]),
        "sits": judged("sits", [(c, i) for c in captions for i in images]),
        "sis": judged("sis", [(a, b) for a in images for b in images if a != b]),
    }
    monkeypatch.setattr(cxc, "human_scores", lambda task, split: pairs_of_task[task])
    score_cxc(corpus, Odd(corpus, range(len(corpus)), pooling), False, "test", work, leave_one_out=not own)
    for task, pairs in read_cxc(work.folder, "test").items():
        human = pairs_of_task[task]
        assert (pairs.human.left, pairs.human.right) == (human.left, human.right)
        assert pairs.human.score.tolist() == human.score.tolist()
        expected = [by_hand(corpus, task, *pair, pooling, own) for pair in zip(human.left, human.right, strict=True)]
        assert pairs.relevance == pytest.approx(np.array(expected), abs=1e-12, nan_ok=True)
    assert np.isnan(by_hand(corpus, "sits", "coco:10", "coco:1", pooling, False))


def test_deviation_between_captions_of_an_image(few: Corpus, work: Work) -> None:
    """Check that pairs of two images and pairs without a score do not count, and a folder without STS."""
    assert sibling_std(work.folder) is None
    score_cxc(few, Odd(few, range(0, 500), nan=0), False, "test", work)
    pairs = read_cxc(work.folder, "test")["sts"]
    given = zip(pairs.human.method, pairs.relevance.tolist(), strict=True)
    values = [value for method, value in given if method == "c2c_cocaption" and value == value]
    assert 0 < len(values) < pairs.human.method.count("c2c_cocaption")
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    assert sibling_std(work.folder) == pytest.approx(deviation, rel=1e-9)
    params = JudgeParams(resamples=0)
    figures = compare(
        PairScores.open(work.folder, JudgedLabel(label="odd", params={"source": "odd"}), "test", False), params, draws=0
    )
    notes = cxc_report([figures], params, {"odd": deviation, "same_image": 0.0, "none": None}).tables[0].notes
    (note,) = [note for note in notes if "two captions of one image" in note]
    assert note.endswith(f": odd {deviation:.3f}.")


def test_a_pair_that_cannot_be_scored_has_a_reason(few: Corpus, work: Work) -> None:
    encoded = range(0, 500)  # the captions of 100 of the 300 images
    score_cxc(few, Odd(few, encoded, nan=0), False, "test", work)
    unscored = {f"{side} not {where}" for side in ("caption", "image") for where in ("in the corpus", "encoded")}
    for pairs in read_cxc(work.folder, "test").values():
        assert [reason is None for reason in pairs.missing] == pairs.scored.tolist()
        assert {reason for reason in pairs.missing if reason} <= {*unscored, "relevance undefined"}
        assert 0 < pairs.scored.sum() < 1000
    sits = read_cxc(work.folder, "test")["sits"]
    undefined = [i for i, reason in enumerate(sits.missing) if reason == "relevance undefined"]
    assert undefined
    assert all(few.image[few.row_of[sits.human.left[i]]] == 0 for i in undefined)


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_scores_are_reported_with_labels(tmp_path: Path) -> None:
    human = human_scores("sits", "test")
    values = [(i * 7919) % 1000 / 1000 for i in range(len(human))]
    rows = zip(human.left, human.right, values, strict=True)
    records: list[dict[str, object]] = [{"left": left, "right": right, "score": value} for left, right, value in rows]
    path = write(tmp_path / "clip.jsonl", [*records[:-3], {"left": "x", "right": "y", "score": 0}])
    with pytest.raises(CheckError, match=r"3 of 44,833 CxC's sits pairs of test have no score; first: coco:"):
        read_cxc_scores(path, "test")
    scored = read_cxc_scores(path, "test", allow_missing=True)
    assert scored.label == "clip"
    assert list(scored.tasks) == ["sits"]
    params = JudgeParams(resamples=20)
    report = cxc_report([compare(scored, params, draws=0)], params, {})
    (row,) = [record for record in report.records if record["subset"] == "all"]
    assert (row["n"], row["missing"]) == (len(human) - 3, 3)
    assert row["first_missing"].endswith("not in the file")
    assert row["pearson"] == pearson(round_relative(np.array(values[:-3])), human.score[:-3])
    assert row["low"] < row["pearson"] < row["high"]
    assert any(note.startswith("clip: scores from a file") for note in report.tables[0].notes)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"left": "coco:1", "score": 1}, "expected `left` and `right`"),
        ({"left": "a", "right": "b", "score": "high"}, "expected `score`, a number"),
        ({"left": "coco:1", "right": "coco:2", "score": 1}, "duplicate pair"),
    ],
)
def test_an_invalid_record_is_named(tmp_path: Path, record: dict[str, object], message: str) -> None:
    path = write(tmp_path / "s.jsonl", [{"left": "coco:1", "right": "coco:2", "score": 1}, record])
    with pytest.raises(CheckError, match=message) as error:
        read_cxc_scores(path, "test")
    assert str(error.value.where).endswith("s.jsonl:2")


SET = judged_set()
PAIRS = Judgements(
    ids=["p", "q", "r"], references=[["a"], ["b"], ["c"]], candidates=["x", "y", "c"], both_orders=True,
    ratings=np.ones((3, 1)), groups=["all"] * 3, clusters=["0", "1", "2"],
)  # fmt: skip


def test_pairs_by_id_and_by_text(tmp_path: Path) -> None:
    by_id = [{"id": "q", "score": 2}, {"id": "p", "score": 1}, {"id": "nobody", "score": 9}, {"id": "r", "score": 3}]
    by_text = [
        {"reference": "x", "candidate": "a", "score": 1},  # the reverse order
        {"references": ["b"], "candidate": "y", "score": 1.5},
        {"references": ["y"], "candidate": "b", "score": 2.5},  # both orders: their mean
        {"reference": "c", "candidate": "c", "score": 3},
    ]
    for records in (by_id, by_text):
        path = write(tmp_path / "s.jsonl", records)
        assert read_pair_scores(path, SET, PAIRS).tolist() == [1.0, 2.0, 3.0]
    (tmp_path / "s.csv").write_text("id,score\np,1\nq,2\nr,3\n")
    assert read_pair_scores(tmp_path / "s.csv", SET, PAIRS).tolist() == [1.0, 2.0, 3.0]
