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
from relabel.judge.cxc import read_cxc, score_cxc
from relabel.store.workdir import Work

REDUCE = {"max": max, "mean": lambda v: sum(v) / len(v), "set": lambda v: sum(v) / len(v), "first": lambda v: v[0]}


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


@pytest.mark.parametrize("pooling", ["max", "mean", "set", "first"])
@pytest.mark.parametrize("own", [True, False])
def test_every_task_equals_its_definition(
    corpus: Corpus, odd: SimpleNamespace, few_pairs: dict[Task, HumanScores], work: Work, pooling: Pooling, own: bool
) -> None:
    relevance = odd.Relevance(corpus, range(len(corpus)), pooling)
    score_cxc(corpus, relevance, False, "test", work, leave_one_out=not own)
    for task, pairs in read_cxc(work.folder, "test").items():
        human = few_pairs[task]
        assert (pairs.human.left, pairs.human.right) == (human.left, human.right)
        assert pairs.human.score.tolist() == human.score.tolist()
        expected = [
            by_hand(corpus, odd, task, a, b, pooling, own) for a, b in zip(human.left, human.right, strict=True)
        ]
        assert pairs.relevance == pytest.approx(np.array(expected), abs=1e-12, nan_ok=True)
    assert np.isnan(by_hand(corpus, odd, "sits", "coco:10", "coco:1", pooling, False))


def test_a_source_counts_the_pairs_of_a_task_before_it_scores_one(
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
        score_cxc(corpus, Limited(corpus, range(len(corpus)), "max"), False, "test", work)
    sizes = dict(zip(corpus.image_ids, (1, 2, 5, 5, 5), strict=True))  # the first five captions of an image
    assert counted == [
        len(few_pairs["sts"]),
        sum(sizes[image] for image in few_pairs["sits"].right),
        sum(sizes[a] * sizes[b] for a, b in zip(few_pairs["sis"].left, few_pairs["sis"].right, strict=True)),
    ]


def test_a_pair_that_cannot_be_scored_has_a_reason(few: Corpus, odd: SimpleNamespace, work: Work) -> None:
    encoded = range(0, 500)  # the captions of 100 of the 300 images
    score_cxc(few, odd.Relevance(few, encoded, nan=0), False, "test", work)
    reasons = {
        "caption not in the corpus", "image not in the corpus", "caption not encoded", "image not encoded",
        "relevance undefined",
    }  # fmt: skip
    for pairs in read_cxc(work.folder, "test").values():
        assert [reason is None for reason in pairs.missing] == pairs.scored.tolist()
        assert {reason for reason in pairs.missing if reason} <= reasons
        assert 0 < pairs.scored.sum() < 1000
    sits = read_cxc(work.folder, "test")["sits"]
    undefined = [i for i, reason in enumerate(sits.missing) if reason == "relevance undefined"]
    assert undefined
    assert all(few.image[few.row_of[sits.human.left[i]]] == 0 for i in undefined)
