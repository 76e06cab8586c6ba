"""Contract: score_texts scores texts outside any corpus as captions. Equal sets are one document, candidates are none,
and a candidate that is among the references is encoded once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.sources.cbow import Cbow, CbowParams
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.same_image import SameImage, SameImageParams
from relabel.sources.texts import TextCorpus, score_both_orders, score_texts

SETS = [
    ["a dog runs on grass", "a brown dog is running"],
    ["two cats sleep on a sofa"],
    ["a dog runs on grass", "a brown dog is running"],
    ["a man rides a wave", "a surfer on a big wave", "a man surfing"],
]
TEXTS = ["a dog runs", "two cats sleep on a sofa", "two cats", "a surfer rides a big wave"]


def test_equal_sets_are_stored_once_and_candidates_share_rows() -> None:
    texts = TextCorpus.of(SETS, TEXTS)
    assert len(texts.corpus) == 2 + 1 + 3 + 3
    assert texts.corpus.splits == {"train": range(6), "val": range(6, 9)}
    for p, (sets, candidate) in enumerate(zip(SETS, TEXTS, strict=True)):
        assert [texts.corpus.texts[row] for row in texts.references[p]] == sets
        assert texts.corpus.texts[texts.candidates[p]] == candidate
    assert texts.candidates[1] == texts.references[1][0]


def test_rows_stay_in_order_beyond_ten_sets_and_ten_captions() -> None:
    sets = [[f"set {m} caption {k}" for k in range(12)] for m in range(12)]
    texts = TextCorpus.of(sets, [f"candidate {m}" for m in range(12)])
    assert texts.corpus.texts == [t for s in sets for t in s] + [f"candidate {m}" for m in range(12)]


def test_cider_equals_pycocoevalcap_with_df_of_the_sets() -> None:
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    distinct = [SETS[0], SETS[1], SETS[3]]
    expected = []
    for sets, candidate in zip(SETS, TEXTS, strict=True):
        one = scorer.CiderScorer()  # documents are all distinct sets; the pair's own set is judged
        for other in distinct:
            one += (candidate if other == sets else "nothing", other)
        expected.append(one.compute_score()[1][distinct.index(sets)])
    scored = score_texts(Cider(CiderParams(tokenizer="lower_split")), SETS, TEXTS, Runtime())
    np.testing.assert_allclose(scored.scores, expected, atol=1e-9)
    assert scored.captions == 9
    assert scored.bytes > 0
    assert scored.seconds > 0


def test_both_orders(tmp_path: Path) -> None:
    source = Cider(CiderParams(tokenizer="lower_split"))
    first, second = TEXTS[:2], TEXTS[2:]
    mean_scores = score_both_orders(source, first, second, Runtime(), folder=tmp_path / "work").scores
    sets = [[t] for t in (*first, *second)]
    each = score_texts(source, sets, [*second, *first], Runtime()).scores
    np.testing.assert_allclose(mean_scores, (each[:2] + each[2:]) / 2)
    assert (tmp_path / "work" / "label" / "manifest.json").is_file()


def test_a_kept_encoding_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "vectors.txt"
    words = ("dog", "runs", "two", "cats", "sofa", "wave")
    file.write_text("".join(f"{word} {n + 1} {(7 * n) % 5} 1\n" for n, word in enumerate(words)))
    source = Cbow(CbowParams(vectors=str(file), tokenizer="lower_split"))
    steps, encoded = Cbow.steps, []
    monkeypatch.setattr(Cbow, "steps", lambda self, *a: encoded.append(1) or steps(self, *a))
    first = score_texts(source, SETS, TEXTS, Runtime(), folder=tmp_path / "kept", label="near")
    again = score_texts(source, SETS, TEXTS, Runtime(), folder=tmp_path / "kept", label="near")
    assert len(encoded) == 1
    np.testing.assert_array_equal(again.scores, first.scores)
    assert again.bytes == first.bytes


def test_a_part_is_encoded_over_the_same_texts(tmp_path: Path) -> None:
    words = ["a", "dog", "runs", "two", "cats", "sleep", "on", "sofa", "man", "wave"]
    file = tmp_path / "vectors.txt"
    rng = np.random.default_rng(0)
    file.write_text("".join(f"{w} {' '.join(map(str, rng.normal(size=5).round(3)))}\n" for w in words))
    near = Cbow(CbowParams(vectors=str(file), tokenizer="lower_split"))

    class GatedCider(Cider):
        def input_labels(self) -> tuple[str, ...]:
            return ("near",)

        def open(self, encoding):  # type: ignore[no-untyped-def]
            return encoding.inputs["near"]

    gated = GatedCider(CiderParams(tokenizer="lower_split"))
    np.testing.assert_array_equal(
        score_texts(gated, SETS, TEXTS, Runtime(), {"near": near}, pooling="max").scores,
        score_texts(near, SETS, TEXTS, Runtime()).scores,
    )


def test_unsupported_sources_are_refused() -> None:
    source = Cider(CiderParams(tokenizer="lower_split"))
    with pytest.raises(UsageError, match="same_image has no scores of new texts: a new text belongs to no image"):
        score_texts(SameImage(SameImageParams()), SETS, TEXTS, Runtime())
    with pytest.raises(UsageError, match="4 reference sets and 3 candidates"):
        score_texts(source, SETS, TEXTS[:3], Runtime())
    with pytest.raises(UsageError, match="no texts to score"):
        score_texts(source, [], [], Runtime())
    with pytest.raises(UsageError, match="an empty reference set") as empty:
        score_texts(source, [["a"], []], ["a", "b"], Runtime())
    assert empty.value.where == "pair 2"
    with pytest.raises(UsageError, match="list of texts"):
        score_texts(source, ["a dog"], ["a"], Runtime())
    with pytest.raises(CheckError, match="is empty") as blank:
        score_texts(source, [["a"], ["b", " "]], ["a", "b"], Runtime())
    assert blank.value.where == "pair 2, reference 2"
    with pytest.raises(CheckError) as surrogate:
        score_texts(source, [["a"]], ["\ud800"], Runtime())
    assert surrogate.value.where == "pair 1, candidate"
