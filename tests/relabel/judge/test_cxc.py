"""Contract: judged pairs are scored by the papers' protocol, each task as an explicit loop does; impossible pairs are
reported.

SITS: the first five captions of the image, the judged caption included by default. STS: both orders are averaged if the
source is not symmetric. SIS: every caption of one image against the set of the other, pooled over both, in both orders.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from relabel.core.errors import UsageError
from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.datasets.cxc import TASKS, HumanScores, Task
from relabel.judge import cxc
from relabel.judge.cxc import SCHEMA, read_cxc, score_cxc
from relabel.sources.same_image import SameImage, SameImageRelevance
from relabel.store.workdir import Work

REDUCE = {"max": max, "mean": lambda v: sum(v) / len(v), "refs": lambda v: sum(v) / len(v), "paired": lambda v: v[0]}


@pytest.fixture
def corpus() -> Corpus:
    """Return a corpus of images with 1, 2, 5, 6 and 7 captions and CxC's ids."""
    return Corpus.from_captions(
        Caption(f"coco:{10 * image + k}", f"coco:{image}", "test", f"caption {k} of {image}")
        for image, count in enumerate((1, 2, 5, 6, 7), 1)
        for k in range(count)
    )


def judged(task: Task, pairs: list[tuple[str, str]]) -> HumanScores:
    left, right = (list(side) for side in zip(*pairs, strict=True))
    method = {"sts": "c2c_isim", "sits": "c2i_intrasim", "sis": "i2i_csim"}[task]
    return HumanScores(task, "test", left, right, np.linspace(0, 5, len(pairs)), [method] * len(pairs))


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> dict[Task, HumanScores]:
    images = [f"coco:{i}" for i in range(1, 6)]
    captions = ["coco:10", "coco:20", "coco:21", "coco:34", "coco:40", "coco:45", "coco:50", "coco:56"]
    scores_of_task: dict[Task, HumanScores] = {
        "sts": judged("sts", [(a, b) for a in captions for b in captions if a < b]),
        "sits": judged("sits", [(c, i) for c in captions for i in images]),
        "sis": judged("sis", [(a, b) for a in images for b in images if a != b]),
    }
    monkeypatch.setattr(cxc, "human_scores", lambda task, split: scores_of_task[task])
    return scores_of_task


def by_hand(
    corpus: Corpus, odd: SimpleNamespace, task: Task, left: str, right: str, pooling: Pooling, own: bool
) -> float:
    relevance, reduce = odd.Relevance(corpus, range(len(corpus))), REDUCE[pooling]

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


@pytest.mark.parametrize("pooling", ["max", "mean", "refs", "paired"])
@pytest.mark.parametrize("own", [True, False])
def test_every_task_equals_its_definition(
    corpus: Corpus, odd: SimpleNamespace, few_pairs: dict[Task, HumanScores], work: Work, pooling: Pooling, own: bool
) -> None:
    relevance = odd.Relevance(corpus, range(len(corpus)), pooling)
    score_cxc(corpus, relevance, odd.Source, "test", work, include_self=own)
    for task, table in read_cxc(work.folder).items():
        human = few_pairs[task]
        assert table.schema.equals(SCHEMA)
        assert table["left"].to_pylist() == human.left
        assert table["right"].to_pylist() == human.right
        assert table["human"].to_pylist() == human.score.tolist()
        expected = [
            by_hand(corpus, odd, task, a, b, pooling, own) for a, b in zip(human.left, human.right, strict=True)
        ]
        relevances = table["relevance"].to_numpy()
        assert relevances == pytest.approx(np.array(expected), abs=1e-12, nan_ok=True)
        assert table["relevance"].null_count == int(np.isnan(expected).sum())
    assert np.isnan(by_hand(corpus, odd, "sits", "coco:10", "coco:1", pooling, False))
    assert work.facts["cxc"]["include_self"] is own


def test_a_source_counts_all_pairs_before_it_scores_one(
    corpus: Corpus, odd: SimpleNamespace, few_pairs: dict[Task, HumanScores], work: Work
) -> None:
    counted: list[int] = []

    class Limited(odd.Relevance):  # type: ignore[name-defined, misc]
        def pairs_to_score(self, references: References, captions: object, total: int) -> int:
            counted.append(len(references.rows))
            assert total == len(captions) == len(references)
            if len(counted) == len(TASKS):
                raise UsageError("too many pairs")
            return total

    with pytest.raises(UsageError, match="too many"):
        score_cxc(corpus, Limited(corpus, range(len(corpus)), "max"), odd.Source, "test", work)
    sizes = dict(zip(corpus.image_ids, (1, 2, 5, 5, 5), strict=True))  # the first five captions of an image
    assert counted == [
        len(few_pairs["sts"]),
        sum(sizes[image] for image in few_pairs["sits"].right),
        sum(sizes[a] * sizes[b] for a, b in zip(few_pairs["sis"].left, few_pairs["sis"].right, strict=True)),
    ]


def test_symmetric_sources_score_one_order(
    corpus: Corpus, odd: SimpleNamespace, few_pairs: dict[Task, HumanScores], work: Work
) -> None:
    relevance = odd.Relevance(corpus, range(len(corpus)))
    odd.Relevance.calls.clear()
    score_cxc(corpus, relevance, odd.Symmetric, "test", work)
    candidates = [min(5, n) for n in (1, 2, 5, 6, 7)]
    assert odd.Relevance.calls == [len(few_pairs["sts"]), len(few_pairs["sits"]), 4 * sum(candidates)]


def test_same_image_on_real_pairs(cxc_test: Corpus, work: Work) -> None:
    score_cxc(cxc_test, SameImageRelevance(cxc_test, range(len(cxc_test)), "max"), SameImage, "test", work)
    tables = read_cxc(work.folder)
    assert [t.num_rows for t in tables.values()] == [44_045, 44_833, 46_719]
    assert sum(t["relevance"].null_count for t in tables.values()) == 0
    own_sampling = {
        m
        for m, r in zip(tables["sits"]["method"].to_pylist(), tables["sits"]["relevance"].to_pylist(), strict=True)
        if r
    }
    assert own_sampling == {"c2i_original"}
    clusters = [cxc_test.image_ids[i] for i in tables["sits"]["cluster"].to_pylist()[:50]]
    assert clusters == tables["sits"]["right"].to_pylist()[:50]
    left = [cxc_test.image[cxc_test.row_of[c]] for c in tables["sts"]["left"].to_pylist()[:50]]
    assert left == tables["sts"]["cluster"].to_pylist()[:50]


def test_missing_ids_are_counted_reported_and_null(few: Corpus, odd: SimpleNamespace, work: Work) -> None:
    notes: list[str] = []

    class Notes(type(cxc.SILENT)):  # type: ignore[misc]
        def note(self, text: str) -> None:
            notes.append(text)

    encoded = range(0, 500)  # the captions of 100 of the 300 images
    score_cxc(few, odd.Relevance(few, encoded), odd.Source, "test", work, Notes())
    for task, table in read_cxc(work.folder).items():
        reasons, relevance = table["missing"].to_pylist(), table["relevance"].to_pylist()
        unscored = [i for i, why in enumerate(reasons) if why]
        assert [r is None for r in relevance] == [why is not None for why in reasons]
        assert {why for why in reasons if why} <= {
            "caption not in the corpus",
            "image not in the corpus",
            "caption not encoded",
            "image not encoded",
        }
        missing = work.facts["cxc"]["missing"][task]
        assert missing["count"] == len(unscored) > 40_000
        assert len(missing["first"]) == 5
        assert table["left"][unscored[0]].as_py() in missing["first"][0]
        assert len(unscored) < len(relevance)
    assert [n.partition(":")[0] for n in notes] == list(TASKS)


def test_undefined_relevance_is_null_with_a_reason(few: Corpus, odd: SimpleNamespace, work: Work) -> None:
    score_cxc(few, odd.Relevance(few, range(len(few)), nan=0), odd.Source, "test", work, tasks=("sits",))
    (table,) = read_cxc(work.folder).values()
    undefined = [i for i, why in enumerate(table["missing"].to_pylist()) if why == "relevance undefined"]
    assert undefined
    assert all(few.image[few.row_of[table["left"][i].as_py()]] == 0 for i in undefined)
    assert (
        table["relevance"].null_count
        == table["missing"].to_pylist().count("relevance undefined") + work.facts["cxc"]["missing"]["sits"]["count"]
    )
