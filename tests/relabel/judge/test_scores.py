"""Contract: both orders of a pair are averaged if the evaluation set says so, and a function returns one number per
pair. Pairs of a file of scores are identified by ids or texts. Missing pairs are refused unless they are allowed, and
errors name file and line.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import CheckError
from relabel.core.numeric.statistics import pearson, round_relative
from relabel.core.runtime import Runtime
from relabel.datasets.cxc import human_scores
from relabel.datasets.evaluation_sets import EvaluationSet, Judgements
from relabel.judge import JudgeParams
from relabel.judge.cxc_figures import compare
from relabel.judge.scores import read_cxc_scores, read_pair_scores, score_judgements, score_with_function
from relabel.judge.tables import cxc_report
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.texts import score_texts


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_scores_are_reported_with_labels(tmp_path: Path) -> None:
    human = human_scores("sits", "test")
    values = [(i * 7919) % 1000 / 1000 for i in range(len(human))]
    records = [
        {"left": a, "right": b, "score": s} for a, b, s in zip(human.left, human.right, values, strict=True)
    ]  # fmt: skip
    path = write(tmp_path / "clip.jsonl", [*records[:-3], {"left": "x", "right": "y", "score": 0}])
    with pytest.raises(CheckError, match=r"3 of 44,833 CxC's sits pairs of test have no score; first: coco:"):
        read_cxc_scores(path, "test")
    scored = read_cxc_scores(path, "test", allow_missing=True)
    assert scored.label == "clip"
    assert list(scored.tasks) == ["sits"]
    params = JudgeParams(resamples=20, draws=0)
    report = cxc_report([compare(scored, params)], params)
    (row,) = [record for record in report.records if record["subset"] == "all"]
    assert (row["n"], row["missing"]) == (len(human) - 3, 3)
    assert row["first_missing"].endswith("not in the file")
    assert row["pearson"] == pearson(round_relative(np.array(values[:-3])), human.score[:-3])
    assert row["low"] < row["pearson"] < row["high"]
    assert any(note.startswith("clip: scores of another program") for note in report.tables[0].notes)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"left": "coco:1", "score": 1}, "expected `left` and `right`"),
        ({"left": "a", "right": "b", "score": "high"}, "expected `score`, a number"),
        ({"left": "coco:1", "right": "coco:2", "score": 1}, "there twice"),
    ],
)
def test_an_invalid_record_is_named(tmp_path: Path, record: dict[str, object], message: str) -> None:
    path = write(tmp_path / "s.jsonl", [{"left": "coco:1", "right": "coco:2", "score": 1}, record])
    with pytest.raises(CheckError, match=message) as error:
        read_cxc_scores(path, "test")
    assert str(error.value.where).endswith("s.jsonl:2")


SET = EvaluationSet(name="mine", title="Mine", dataset="mine", read=None, pair_ids="a letter", protocol="P.")  # type: ignore[arg-type]
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


def test_missing_pairs_are_refused_unless_allowed(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [{"id": "p", "score": 1}])
    with pytest.raises(CheckError, match=r"2 of 3 pairs of mine have no score; first: q.*--allow-missing"):
        read_pair_scores(path, SET, PAIRS)
    np.testing.assert_array_equal(read_pair_scores(path, SET, PAIRS, allow_missing=True), [1.0, np.nan, np.nan])
    with pytest.raises(CheckError, match=r"no pair of mine.*by id: a letter"):
        read_pair_scores(write(path, [{"id": "z", "score": 1}]), SET, PAIRS, allow_missing=True)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"id": "q", "score": None}, "expected `score`, a number"),
        ({"id": "p", "score": 1}, "pair p is there twice"),
        ({"reference": "a", "score": 1}, r"expected `id`, or `references` and `candidate`.*a letter"),
        ({"candidate": "a", "score": 1}, "expected `references`, a list of texts"),
    ],
)
def test_an_invalid_record_of_a_pair_is_named(tmp_path: Path, record: dict[str, object], message: str) -> None:
    path = write(tmp_path / "s.jsonl", [{"id": "p", "score": 1}, record])
    with pytest.raises(CheckError, match=message) as error:
        read_pair_scores(path, SET, PAIRS)
    assert str(error.value.where).endswith("s.jsonl:2")


def test_a_source_in_both_orders_and_a_function() -> None:
    pairs = Judgements(
        ids=["1", "2"],
        references=[["a dog runs"], ["two cats"]], candidates=["a dog", "two cats sleep"], both_orders=True,
        ratings=np.ones((2, 1)), groups=["all"] * 2, clusters=["0", "1"],
    )  # fmt: skip
    source = Cider(CiderParams(tokenizer="lower_split"))
    scored = score_judgements(pairs, source, Runtime())
    texts = [*(r[0] for r in pairs.references), *pairs.candidates]
    swapped = [*pairs.candidates, *(r[0] for r in pairs.references)]
    each = score_texts(source, [[t] for t in texts], swapped, Runtime()).scores
    np.testing.assert_allclose(scored.scores, (each[:2] + each[2:]) / 2)
    lengths = score_with_function(pairs, lambda references, candidates: [len(r[0]) for r in references])
    np.testing.assert_array_equal(lengths, [(10 + 5) / 2, (8 + 14) / 2])
    with pytest.raises(CheckError, match=r"shape \(1,\) for 2 pairs"):
        score_with_function(pairs, lambda references, candidates: [1.0])
    with pytest.raises(CheckError, match="no numbers"):
        score_with_function(pairs, lambda references, candidates: ["x", "y"])
