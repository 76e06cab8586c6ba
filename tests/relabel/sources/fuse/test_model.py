"""Contract: a head is a sum of interpolated curves between 0 and its cap; a damaged model is refused. Weights are the
optimum that scikit-learn finds, and curves increase, except those of free parts. Cross-validation scores no pair with
a head that saw its images.

A fuse is fitted to val's judged pairs only, by the judge's protocol. Parts that were tuned on val contribute out-of-
fold predictions. An altered copy has the caption's words but for one or two, exchanged or replaced; classes of words
follow from neighbours.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.encodings import corpus_of
from tests.relabel.sources.fuse.fixtures import Table, small_model, some_head, write_fuse_model

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.datasets.cxc import HumanScores
from relabel.sources.base import Source
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.fuse import fit as fuse_fit
from relabel.sources.fuse import tune
from relabel.sources.fuse.altered import alter_captions, classify_words
from relabel.sources.fuse.fit import Sample, TuneFuseParams, cross_validate, fit_head, fit_linear
from relabel.sources.fuse.model import read_model
from relabel.sources.fuse.tune import OUT_OF_FOLD, FuseInput, find_out_of_fold, judged_pairs, tune_fuse
from relabel.sources.meteor import Meteor, MeteorParams
from relabel.sources.relevance import Relevance
from relabel.sources.sbert import Sbert, SbertParams
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import version_of
from relabel.store.workdir import Work
from relabel_train.files import sha256_file
from relabel_train.scoring.fuse import Curve, Feature, Head


def test_a_head_is_a_sum_of_curves_between_0_and_its_cap() -> None:
    head = some_head((Feature("a", "max"), Feature("a", "mean"), Feature("b", "set")))
    values = np.random.default_rng(1).random((500, 3)) * 3 - 1
    values[7, 1] = np.nan
    scores = head.score(values.T)
    for p, row in enumerate(values):
        total = 0.0
        for (_, knots, heights), value in zip(head.curves, row, strict=True):
            j = sum(value >= knot for knot in knots)
            if j in (0, len(knots)):
                total += heights[0 if j == 0 else -1]
            else:
                share = (value - knots[j - 1]) / (knots[j] - knots[j - 1])
                total += heights[j - 1] + share * (heights[j] - heights[j - 1])
        assert np.isnan(scores[p]) if p == 7 else scores[p] == pytest.approx(min(head.cap, max(0.0, total)))
    assert (scores == head.cap).any()
    assert np.array_equal(scores, np.concatenate([head.score(row[:, None]) for row in values]), equal_nan=True)


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    write_fuse_model(tmp_path / "fuse", small_model())
    path = tmp_path / "fuse" / "model.json"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckError, match=r"model\.json"):
        read_model(tmp_path / "fuse")


Array = np.ndarray[Any, Any]


def sample(seed: int = 0, pairs: int = 900, ways: int = 1, images: int = 60) -> Sample:
    random = np.random.default_rng(seed)
    values = random.random((pairs, ways, 4))
    target = values.mean(axis=1) @ np.array([0.5, 0.3, 0.0, -0.4]) + random.normal(size=pairs) / 20
    features = tuple(Feature(part, look) for part in "ab" for look in ("max", "mean"))
    return some_sample(features, values, target, random.integers(0, images, (pairs, 2)))


def some_sample(features: tuple[Feature, ...], values: Array, human: Array, images: Array) -> Sample:
    return Sample(features, values, human, images, np.full(len(human), "some"))


def with_altered(one: Sample, values: Array, score: float) -> Sample:
    """Return a sample with pairs of no image."""
    n = len(values)
    return one.joined(some_sample(one.features, values, np.full(n, score), np.full((n, 2), -1)))


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("penalty", [1e-9, 1e-3, 1.0])
def test_weights_are_the_optimum(penalty: float, free: bool) -> None:
    """Compare with scikit-learn's weighted ridge on columns scaled by their penalties."""
    from sklearn.linear_model import Ridge

    one = sample()
    weight, scale = np.random.default_rng(2).random((2, 900))
    values, scale = np.concatenate([one.values[:, 0], np.ones((900, 1))], axis=1), scale[:5] + 0.5
    intercept, weights = fit_linear(values, one.human, weight, np.full(5, free), penalty / scale**2)
    assert weights[4] == pytest.approx(0, abs=1e-12)
    assert (weights[3] < 0) == free
    ridge = Ridge(alpha=penalty, positive=not free, tol=1e-12, max_iter=100_000)
    ridge.fit(values * scale, one.human, weight / weight.sum())
    assert ridge.predict(values * scale) == pytest.approx(values @ weights + intercept, abs=1e-5)


def test_a_free_part_may_count_against_relevance() -> None:
    """The target falls with `b`: only a head in which `b` is free follows it."""
    random = np.random.default_rng(0)
    values = random.random((900, 1, 2))
    features = (Feature("a", "max"), Feature("b", "max"))
    human = 0.5 + 0.3 * values[:, 0, 0] - 0.3 * values[:, 0, 1]
    one = some_sample(features, values, human, random.integers(0, 60, (900, 2)))
    errors = {}
    for free in ((), ("b",)):
        head = fit_head(one, TuneFuseParams(free_parts=free), cap=0)
        errors[free] = np.abs(one.score(head) - one.human).mean()
        assert (np.diff(head.curves[0].values) >= 0).all()  # `a` stays monotone
    assert errors[("b",)] < errors[()] / 3


def test_altered_captions_count() -> None:
    """Pairs with a low score in a corner without judged pairs lower the corner, and it alone."""
    random = np.random.default_rng(0)
    values = random.random((900, 2, 2)) * 0.8
    features = (Feature("a", "max"), Feature("b", "max"))
    one = some_sample(features, values, values.mean(axis=(1, 2)), random.integers(0, 60, (900, 2)))
    params = TuneFuseParams(free_parts=("a", "b"))
    corner = 0.9 + random.random((100, 2, 2)) / 10
    before, after = (fit_head(two, params, cap=0) for two in (one, with_altered(one, corner, 0.2)))
    assert before.score(corner[:, 0].T).mean() > 0.5
    assert after.score(corner[:, 0].T).mean() == pytest.approx(0.2, abs=0.05)
    assert np.abs(one.score(after) - one.score(before)).mean() < 0.05


def test_no_pair_is_scored_by_a_head_that_saw_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample(pairs=300)
    seen: list[set[int]] = []
    scored: list[int] = []

    def spy(train: Sample, params: TuneFuseParams, cap: float) -> Head:
        seen.append(set(train.images.ravel().tolist()))
        return Head(tuple(Curve(feature, (0.0,), (0.5,)) for feature in train.features))

    def check(self: Sample, head: Head) -> Any:
        assert not seen[-1] & set(self.images.ravel().tolist())
        scored.append(len(self.human))
        return np.zeros(len(self.human))

    monkeypatch.setattr(fuse_fit, "fit_head", spy)
    monkeypatch.setattr(Sample, "score", check)
    assert np.isfinite(cross_validate(one, TuneFuseParams(), folds=4)).all()
    assert sum(scored) == 300


# Pairs


@pytest.fixture
def judged_corpus(monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """Return 40 images of val with 5 captions each, and 200 judged pairs of each task."""

    def scores(task: str, split: str) -> HumanScores:
        assert split == "val", "a fit may read nothing but val"
        random = np.random.default_rng(5 if task == "sits" else 6)
        m, p, other = random.integers(0, 40, 200), random.integers(0, 5, 200), random.integers(0, 40, 200)
        left = [f"c:{image}-{position}" for image, position in zip(m, p, strict=True)]
        right = [f"c:{image}" if task == "sits" else f"c:{image}-0" for image in other]
        same, differing = ("c2i_original", "c2i_intrasim") if task == "sits" else ("c2c_cocaption", "c2c_isim")
        method = [same if one else differing for one in m == other]
        return HumanScores(task, "val", left, right, random.random(200) * 5, method)  # type: ignore[arg-type]

    monkeypatch.setattr("relabel.sources.fuse.tune.human_scores", scores)
    return corpus_of([[f"caption {p} of {m}" for p in range(5)] for m in range(40)], "val")


def ingredient(corpus: Corpus, source: Source[Any], seed: int = 0, **extra: Any) -> FuseInput:
    config, opened = {"source": source.spec.name, "rows": [0, 9]}, extra.get("opened", lambda: Table(corpus, seed))
    return FuseInput(source, config, f"finger-{seed}", opened, find_out_of_fold(source))


def parts_of(corpus: Corpus) -> dict[str, FuseInput]:
    return {
        "cider": ingredient(corpus, Cider(CiderParams()), 1),
        "meteor": ingredient(corpus, Meteor(MeteorParams()), 2),
        "sbert": ingredient(corpus, Sbert(SbertParams()), 3),
    }


def test_features_follow_the_protocol_of_the_judge(judged_corpus: Corpus, tmp_path: Path) -> None:
    parts = parts_of(judged_corpus)
    params = TuneFuseParams(parts=tuple(parts))
    manifest, built = build(tmp_path / "fuse", tune_fuse(params, parts, judged_corpus, Runtime(threads=1)))
    assert built
    assert not build(tmp_path / "fuse", tune_fuse(params, parts, judged_corpus, Runtime(threads=1)))[1]
    model = read_model(tmp_path / "fuse")
    assert [label for label, p in model.parts.items() if p.pair_by_pair] == ["meteor"]
    assert model.parts["cider"].config == {"source": "cider", "version": version_of("encoding", "cider")}
    looks = [" ".join(f) for f in model.heads["set"].features]
    assert looks == ["cider set", "cider max", "meteor set", "sbert max", "sbert mean"]
    assert [f.part for f in model.heads["single"].features] == ["cider", "meteor", "sbert"]
    relevance, sits = Table(judged_corpus, 3), judged_pairs("sits", parts, judged_corpus, Runtime(threads=1))
    human = tune.human_scores("sits", "val")
    for p in range(0, 200, 17):
        rows = judged_corpus.references([judged_corpus.image_of[human.right[p]]]).rows
        assert len(rows) == 5
        each = relevance.values[rows, judged_corpus.row_of[human.left[p]]]
        assert sits.values[p, 0, 3:] == pytest.approx([each.max(), each.mean()])
    human, sts = tune.human_scores("sts", "val"), judged_pairs("sts", parts, judged_corpus, Runtime(threads=1))
    left, right = (np.array([judged_corpus.row_of[i] for i in side]) for side in (human.left, human.right))
    assert sts.values[:, 0, 2] == pytest.approx(relevance.values[left, right])
    assert sts.values[:, 1, 2] == pytest.approx(relevance.values[right, left])
    metadata = manifest.metadata["tasks"]["sits"]
    assert metadata["pairs"] == 200
    assert set(metadata["cross_validated"]) == {"all", "c2i_original", "c2i_intrasim"}
    assert set(manifest.inputs) >= {"cxc sits val", "cxc sts val", "encoding sbert"}
    assert not any("test" in name for name in manifest.inputs)


def out_of_fold(folder: Path, corpus: Corpus) -> Path:
    """Write the out-of-fold predictions of a part tuned on val: some pairs, in another order."""
    columns: dict[str, list[Any]] = {"task": [], "left": [], "right": [], "max": [], "mean": []}
    for task in ("sts", "sits"):
        human = tune.human_scores(task, "val")  # type: ignore[arg-type]
        for p in range(len(human) - 1, 0, -1):
            if p % 3:
                row = (task, human.left[p], human.right[p], p / 200, p / 400)
                for name, value in zip(columns, row, strict=True):
                    columns[name].append(value)

    def fill(work: Work) -> None:
        work.file(OUT_OF_FOLD, lambda path: pq.write_table(pa.table(columns), path))

    build(folder, Recipe("sentence_encoder", "tuned", dict, {"cxc sits val": "x"}, fill))
    return folder


def test_a_part_tuned_on_val_is_read_out_of_fold(judged_corpus: Corpus, tmp_path: Path) -> None:
    """Check that the part itself is not scored, and that pairs across its folds are excluded."""

    def fail_if_called() -> Relevance:
        raise AssertionError("a model tuned on val has scored val")

    tuned = Sbert(SbertParams(model=str(out_of_fold(tmp_path / "tuned", judged_corpus))))
    parts = {
        "cider": parts_of(judged_corpus)["cider"],
        "tuned": ingredient(judged_corpus, tuned, 4, opened=fail_if_called),
    }
    params = TuneFuseParams(parts=tuple(parts))
    manifest, _ = build(tmp_path / "fuse", tune_fuse(params, parts, judged_corpus, Runtime(threads=1)))
    values = judged_pairs("sits", parts, judged_corpus, Runtime(threads=1)).values[:, 0, 2]
    # Some pairs are drawn twice, so a pair that the file lacks may be in it under another number.
    assert set(np.flatnonzero(np.isnan(values))) <= set(range(0, 200, 3))
    assert values[1:3].tolist() == [1 / 200, 2 / 200]
    missing = int(np.isnan(values).sum())
    assert manifest.metadata["tasks"]["sits"]["left_out"] == missing > 50
    assert manifest.inputs["out of fold tuned"] == sha256_file(tmp_path / "tuned" / OUT_OF_FOLD)


CAPTIONS = [
    "A black cat on a white chair.",
    "A man sitting on a bench next to a dog",
    "Two large trucks are parked in a green field",
    "The woman holding an umbrella behind a red bus",
    "There is nothing",
    "a bowl with a spoon and three apples",
]


def test_copies_differ_by_one_or_two_words() -> None:
    copies = alter_captions(CAPTIONS * 20, 60, seed=1)
    assert len(copies) == 60
    kinds = Counter()
    for caption, copy in copies:
        before, after = caption.split(), copy.split()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert 1 <= len(changed) <= 2
        exchanged = sorted(before) == sorted(after)
        # A full stop stays at the end, so that an exchange may add it to another word.
        kinds["exchange" if exchanged or len(changed) == 2 else "replace"] += 1
    assert kinds == {"exchange": 30, "replace": 30}


@pytest.mark.parametrize(
    ("caption", "wanted"),
    [
        ("a young man in a hat", [None, "False-True", "True-False", "relation", None, "False-False"]),
        ("three dogs playing .", [None, "False-True", "True-False", None]),
    ],
)
def test_classes_follow_from_neighbours(caption: str, wanted: list[str | None]) -> None:
    assert classify_words(caption.split()) == wanted
