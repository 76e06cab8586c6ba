"""Contract: a fuse is fitted to val's judged pairs only, by the judge's protocol. Linear weights are the optimum that
scikit-learn finds, and trees increase with every feature. Cross-validation scores no pair with a head that saw its
images. Parts that were tuned on val contribute out-of-fold predictions. A killed fit keeps its scores. A fuse of itself
is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.fuse.fixtures import Table

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.datasets import cxc
from relabel.datasets.cxc import HumanScores
from relabel.sources.base import Source
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.fuse import fit as fuse_fit
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.fit import AddedPairs, FitParams, Sample, cross_validate, fit_head, fit_linear
from relabel.sources.fuse.model import Head, read_model
from relabel.sources.fuse.tune import FuseInput, TuneFuseParams, find_out_of_fold, tune_fuse
from relabel.sources.fuse.tune_data import OUT_OF_FOLD, JudgedPairs, poolings_of
from relabel.sources.meteor import Meteor, MeteorParams
from relabel.sources.relevance import Relevance
from relabel.sources.sbert import Sbert, SbertParams
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel.store.workdir import Work

FAST = {"trees": 5, "leaf_pairs": 2}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


def test_val_and_test_share_no_image() -> None:
    """Check the images of SITS and the images of the captions of the other tasks."""
    val, test = cxc.image_ids("val"), cxc.image_ids("test")
    assert len(val) == len(test) == 5000
    assert not np.intersect1d(val, test).size
    captions = [set(cxc.human_scores(t, s).left) for s in ("val", "test") for t in ("sits", "sts")]
    assert not (captions[0] | captions[1]) & (captions[2] | captions[3])


# Fit


def sample(seed: int = 0, pairs: int = 900, ways: int = 1, images: int = 60) -> Sample:
    random = np.random.default_rng(seed)
    values = random.random((ways, pairs, 4))
    target = values.mean(axis=0) @ np.array([0.5, 0.3, 0.0, -0.4]) + random.normal(size=pairs) / 20
    features = tuple(Feature("a", look) for look in ("max", "second", "mean", "refs"))
    return Sample(features, values, target, random.integers(0, images, (pairs, 2)))


@pytest.mark.parametrize("penalty", [0.0, 1e-3, 1.0])
def test_weights_are_the_optimum(penalty: float) -> None:
    """Compare with scikit-learn's positive ridge on standardised features; negative and constant features have
    weight 0.
    """
    from sklearn.linear_model import Ridge

    one = sample()
    values = np.concatenate([one.values[0], np.ones((900, 1))], axis=1)
    intercept, weights = fit_linear(values, one.human, penalty)
    assert weights[3] == weights[4] == 0
    standard = (values[:, :4] - values[:, :4].mean(axis=0)) / values[:, :4].std(axis=0)
    ridge = Ridge(alpha=penalty * 900, positive=True, tol=1e-12, max_iter=100_000).fit(standard, one.human)
    assert standard @ ridge.coef_ + ridge.intercept_ == pytest.approx(values @ weights + intercept, abs=1e-5)


def test_a_head_increases_with_every_feature() -> None:
    head = fit_head(sample(), FitParams(trees=40))
    random = np.random.default_rng(1)
    for f in range(4):
        values = np.repeat(random.random((1, 4)), 50, axis=0)
        values[:, f] = np.linspace(-1, 2, 50)
        assert (np.diff(head.score(values)) >= 0).all()


def test_the_trunk_scales_the_linear_fit() -> None:
    """Check that trunk=1 with untrained trees equals the linear fit, and that a linear head has no trees."""
    one = sample()
    straight = fit_head(one, FitParams(model="linear"))
    assert not len(straight.trees.roots)
    head = fit_head(one, FitParams(trunk=1.0, trees=1, leaf_pairs=900, rate=1e-9))
    assert head.score(one.values[0]) == pytest.approx(straight.score(one.values[0]), abs=1e-6)
    half = fit_head(one, FitParams(trunk=0.5))
    assert half.weights == pytest.approx(straight.weights / 2)


def test_a_free_part_may_count_against_relevance() -> None:
    """The target falls with `b`: only a head in which `b` is free follows it."""
    random = np.random.default_rng(0)
    values = random.random((1, 900, 2))
    features = (Feature("a", "max"), Feature("b", "max"))
    one = Sample(
        features, values, 0.5 + 0.3 * values[0, :, 0] - 0.3 * values[0, :, 1], random.integers(0, 60, (900, 2))
    )
    errors = {}
    for free in ((), ("b",)):
        head = fit_head(one, FitParams(free=free, plateau=0))
        errors[free] = np.abs(one.score(head) - one.human).mean()
        grid = np.stack([np.linspace(0, 1, 50), np.full(50, 0.5)], axis=1)
        assert (np.diff(head.score(grid)) >= 0).all()  # `a` stays monotone
    assert errors[("b",)] < errors[()] / 3


def test_added_pairs_shape_trees_by_their_weight() -> None:
    """Pairs with a low score in a corner without judged pairs: the more weight, the lower the corner."""
    random = np.random.default_rng(0)
    values = random.random((2, 900, 2)) * 0.8
    features = (Feature("a", "max"), Feature("b", "max"))
    human = values.mean(axis=(0, 2))
    one = Sample(features, values, human, random.integers(0, 60, (900, 2)))
    params = FitParams(free=("a", "b"), leaf_pairs=20, plateau=0)
    corner = np.full((2, 100, 2), 0.95)
    scores = [fit_head(one, params).score(corner[0])[0]]
    for weight in (0.5, 5.0):
        added = AddedPairs(corner, np.full(100, 0.2), weight)
        scores.append(fit_head(replace(one, added=added), params).score(corner[0])[0])
    assert scores[0] > 0.6
    assert scores[0] > scores[1] > scores[2]
    assert scores[2] == pytest.approx(0.2, abs=0.05)


def test_added_pairs_join_every_fit_and_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample(pairs=300)
    one = replace(one, added=AddedPairs(one.values[:, :7], one.human[:7], 1.0))
    assert one.take(np.arange(5)).added is one.added
    assert one.only(["b"]).added.values.shape == (1, 7, 0)  # type: ignore[union-attr]
    assert len(cross_validate(one, FitParams(folds=3, trees=2))) == 300


@pytest.mark.parametrize("model", ["linear", "boosted"])
def test_the_best_pairs_of_one_image_share_the_largest_score(model: str) -> None:
    one = sample()
    images = np.where(np.arange(900)[:, None] < 400, np.arange(900)[:, None], one.images)
    one = replace(one, images=images, human=0.4 + one.human / 2)
    plain = one.score(fit_head(one, FitParams(model=model, trees=20, plateau=0)))  # type: ignore[arg-type]
    head = fit_head(one, FitParams(model=model, trees=20, plateau=0.9))  # type: ignore[arg-type]
    flat = one.score(head)
    same = one.images[:, 0] == one.images[:, 1]
    assert (flat[same] == head.plateau.score).mean() == pytest.approx(0.9, abs=0.01)
    assert flat.max() == head.plateau.score == pytest.approx(plain[same][plain[same] > head.plateau.start].mean())
    below = plain <= head.plateau.start
    assert np.array_equal(flat[below], plain[below])
    # Another order of pairs than before would be no plateau.
    order = np.argsort(plain, kind="stable")
    assert (np.diff(flat[order]) >= 0).all()


def test_a_fit_is_reproducible_for_any_number_of_threads() -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(4):
        a = fit_head(sample(), FitParams(trees=8))
    b = fit_head(sample(), FitParams(trees=8))
    for x, y in zip((a.weights, *a.trees), (b.weights, *b.trees), strict=True):
        assert np.array_equal(x, y)


def test_no_pair_is_scored_by_a_head_that_saw_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample(pairs=300)
    seen: list[set[int]] = []
    scored: list[int] = []

    def spy(train: Sample, params: FitParams) -> Head:
        seen.append(set(train.images.ravel().tolist()))
        return Head(train.features, 0.5, np.zeros(4))

    def check(self: Sample, head: Head) -> Any:
        assert not seen[-1] & set(self.images.ravel().tolist())
        scored.append(len(self.human))
        return np.zeros(len(self.human))

    monkeypatch.setattr(fuse_fit, "fit_head", spy)
    monkeypatch.setattr(Sample, "score", check)
    assert np.isfinite(cross_validate(one, FitParams(folds=4))).all()
    assert sum(scored) == 300


def test_a_pair_scored_in_both_orders_has_the_mean() -> None:
    two = sample(ways=2)
    head = fit_head(two, FitParams(**FAST))
    assert two.score(head) == pytest.approx((head.score(two.values[0]) + head.score(two.values[1])) / 2)


# Pairs


@pytest.fixture
def judged_corpus(monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """Return 40 images of val with 5 captions each, and 200 judged pairs of each task."""
    captions = [
        Caption(f"coco:{m * 10 + p}", f"coco:{m}", "val", f"caption {p} of {m}", "")
        for m in range(40)
        for p in range(5)
    ]
    corpus, random = Corpus.from_captions(captions), np.random.default_rng(3)

    def scores(task: str, split: str) -> HumanScores:
        assert split == "val", "a fit may read nothing but val"
        left = [f"coco:{m * 10 + p}" for m, p in zip(*random_pairs(task), strict=True)]
        images = random.integers(0, 40, 200)
        right = [f"coco:{m}" if task == "sits" else f"coco:{m * 10}" for m in images]
        own_image = [a.rstrip("0123456789") and int(a[5:]) // 10 == int(m) for a, m in zip(left, images, strict=True)]
        names = ("c2i_original", "c2i_intrasim") if task == "sits" else ("c2c_cocaption", "c2c_isim")
        return HumanScores(task, "val", left, right, values[task], [names[0] if o else names[1] for o in own_image])  # type: ignore[arg-type]

    values = {task: np.random.default_rng(4).random(200) * 5 for task in ("sits", "sts")}

    def random_pairs(task: str) -> tuple[Any, Any]:
        nonlocal random
        random = np.random.default_rng(5 if task == "sits" else 6)
        return random.integers(0, 40, 200), random.integers(0, 5, 200)

    monkeypatch.setattr("relabel.sources.fuse.tune_data.human_scores", scores)
    return corpus


def ingredient(corpus: Corpus, source: Source[Any], seed: int = 0, **extra: Any) -> FuseInput:
    semantic = {"source": source.spec.name, "rows": [0, 9]}
    return FuseInput(source, semantic, f"finger-{seed}", extra.get("opened", lambda: Table(corpus, seed)))


def parts_of(corpus: Corpus) -> dict[str, FuseInput]:
    return {
        "cider": ingredient(corpus, Cider(CiderParams()), 1),
        "meteor": ingredient(corpus, Meteor(MeteorParams()), 2),
        "sbert": ingredient(corpus, Sbert(SbertParams()), 3),
    }


def test_features_follow_the_protocol_of_the_judge(judged_corpus: Corpus, tmp_path: Path) -> None:
    parts = parts_of(judged_corpus)
    params = TuneFuseParams(parts=tuple(parts), **FAST)
    manifest, built = tune_fuse(params, parts, judged_corpus, tmp_path / "fuse", Runtime(threads=1))
    assert built
    assert not tune_fuse(params, parts, judged_corpus, tmp_path / "fuse", Runtime(threads=1))[1]
    model = read_model(tmp_path / "fuse")
    assert {label: p.pair_by_pair for label, p in model.parts.items()} == {
        "cider": False,
        "meteor": True,
        "sbert": False,
    }
    assert model.parts["cider"].semantic == {"source": "cider"}
    looks = [str(f) for f in model.heads["set"].features]
    assert looks == [
        "cider refs",
        "cider max",
        "cider second",
        "meteor refs",
        "sbert max",
        "sbert second",
        "sbert mean",
    ]
    assert [f.part for f in model.heads["single"].features] == ["cider", "meteor", "sbert"]
    table, relevance = pq.read_table(tmp_path / "fuse" / "sits-sbert.parquet"), Table(judged_corpus, 3)
    pairs = JudgedPairs.of("sits", judged_corpus)
    for p in range(0, 200, 17):
        rows = judged_corpus.references([int(pairs.right[p])]).rows
        assert len(rows) == 5
        each = sorted(relevance.values[rows, pairs.left[p]].tolist())
        features = [table[f"{look} 0"][p].as_py() for look in ("max", "second", "mean")]
        assert features == pytest.approx([each[-1], each[-2], sum(each) / 5])
    table, pairs = pq.read_table(tmp_path / "fuse" / "sts-sbert.parquet"), JudgedPairs.of("sts", judged_corpus)
    assert table["max 0"].to_numpy() == pytest.approx(relevance.values[pairs.left, pairs.right])
    assert table["max 1"].to_numpy() == pytest.approx(relevance.values[pairs.right, pairs.left])
    facts = manifest.facts["tasks"]["sits"]
    assert facts["pairs"] == 200
    assert [step["parts"] for step in facts["cross_validated"]][-1] == list(parts)
    assert set(manifest.inputs) >= {"cxc sits val", "cxc sts val", "encoding sbert"}
    assert not any("test" in name for name in manifest.inputs)


def test_poolings_of_a_part() -> None:
    assert poolings_of(Sbert(SbertParams()), "sits") == ("max", "second", "mean")
    assert poolings_of(Cider(CiderParams()), "sits") == ("refs", "max", "second")
    assert poolings_of(Meteor(MeteorParams()), "sits") == ("refs",)
    assert poolings_of(Cider(CiderParams()), "sts") == ("max",)


def out_of_fold(folder: Path, corpus: Corpus, change: Callable[[dict[str, list[Any]]], None] = lambda _: None) -> Path:
    """Write the out-of-fold predictions of a part tuned on val: some pairs, in another order."""
    columns: dict[str, list[Any]] = {"task": [], "left": [], "right": [], "max": [], "second": [], "mean": []}
    for task in ("sts", "sits"):
        pairs = JudgedPairs.of(task, corpus)  # type: ignore[arg-type]
        for p in range(len(pairs.left) - 1, 0, -1):
            if p % 3:
                cxc = pairs.human
                row = (task, cxc.left[p], cxc.right[p], p / 200, p / 300, p / 400)
                for name, value in zip(columns, row, strict=True):
                    columns[name].append(value)
    change(columns)

    def fill(work: Work) -> None:
        work.file(OUT_OF_FOLD, lambda path: pq.write_table(pa.table(columns), path))

    build(folder, ArtefactSpec("sentence_encoder", "tuned", {}, {"cxc sits val": "x"}), fill)
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
    params = TuneFuseParams(parts=tuple(parts), **FAST)
    manifest, _ = tune_fuse(params, parts, judged_corpus, tmp_path / "fuse", Runtime(threads=1))
    table, pairs = pq.read_table(tmp_path / "fuse" / "sits-tuned.parquet"), JudgedPairs.of("sits", judged_corpus)
    position = {(a, b): p for p, (a, b) in enumerate(zip(pairs.human.left, pairs.human.right, strict=True)) if p % 3}
    for p, key in enumerate(zip(pairs.human.left, pairs.human.right, strict=True)):
        value = table["max 0"][p].as_py()
        assert np.isnan(value) if key not in position else value > 0
    missing = sum(key not in position for key in zip(pairs.human.left, pairs.human.right, strict=True))
    assert manifest.facts["tasks"]["sits"]["left_out"] == missing > 50
    assert read_model(tmp_path / "fuse").parts["tuned"].out_of_fold is not None
    assert read_model(tmp_path / "fuse").parts["cider"].out_of_fold is None


def test_out_of_fold_predictions_without_a_column(judged_corpus: Corpus, tmp_path: Path) -> None:
    folder = out_of_fold(tmp_path / "tuned", judged_corpus, lambda columns: ignore(columns.pop("second")))
    parts = {"tuned": ingredient(judged_corpus, Sbert(SbertParams(model=str(folder))))}
    with pytest.raises(CheckError, match=r"out_of_fold.parquet: no column second"):
        tune_fuse(TuneFuseParams(parts=("tuned",)), parts, judged_corpus, tmp_path / "fuse", Runtime(threads=1))


def test_a_part_tuned_on_val_without_folds_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "tuned", ArtefactSpec("sentence_encoder", "tuned", {}, {"cxc sits val": "x"}), lambda work: None)
    with pytest.raises(UsageError, match=r"tuned on val and left no predictions.*--folds"):
        find_out_of_fold(Sbert(SbertParams(model=str(tmp_path / "tuned"))))
    build(tmp_path / "other", ArtefactSpec("sentence_encoder", "other", {}, {"stsb": "x"}), lambda work: None)
    assert find_out_of_fold(Sbert(SbertParams(model=str(tmp_path / "other")))) is None
    assert find_out_of_fold(Sbert(SbertParams())) is None


def ignore(_: Any) -> None:
    """Ignore all arguments."""


def test_a_killed_fit_keeps_its_scores(judged_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[int] = []

    def opened(seed: int) -> Callable[[], Relevance]:
        def make() -> Relevance:
            requests.append(seed)
            return Table(judged_corpus, seed)

        return make

    parts = {
        "cider": ingredient(judged_corpus, Cider(CiderParams()), 1, opened=opened(1)),
        "sbert": ingredient(judged_corpus, Sbert(SbertParams()), 3, opened=opened(3)),
    }
    params = TuneFuseParams(parts=tuple(parts), **FAST)
    with monkeypatch.context() as patch:
        patch.setattr("relabel.sources.fuse.tune._fit_task", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tune_fuse(params, parts, judged_corpus, tmp_path / "fuse", Runtime(threads=1))
    tune_fuse(params, parts, judged_corpus, tmp_path / "fuse", Runtime(threads=1))
    assert requests == [1, 3]
    other = tmp_path / "other"
    tune_fuse(params, parts, judged_corpus, other, Runtime(threads=1))
    for file in (tmp_path / "fuse").iterdir():
        if file.name != "manifest.json":
            assert file.read_bytes() == (other / file.name).read_bytes()


@pytest.mark.parametrize("parts", [(), ("cider", "cider")])
def test_parts_are_distinct_labels(judged_corpus: Corpus, tmp_path: Path, parts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="each once"):
        tune_fuse(TuneFuseParams(parts=parts), {}, judged_corpus, tmp_path / "fuse", Runtime())


def test_a_free_label_is_a_part(judged_corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tune.fuse.free: meteor is not among the parts cider"):
        tune_fuse(TuneFuseParams(parts=("cider",), free=("meteor",)), {}, judged_corpus, tmp_path / "fuse", Runtime())


def test_altered_captions_join_sts(judged_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its copy, every fifth with itself; a killed run keeps them; the head of sets is as without."""
    captions = [f"a {colour} dog near a {size} cat" for colour in ("red", "black", "old") for size in ("big", "small")]
    monkeypatch.setattr("relabel.sources.fuse.tune.read_train_captions", lambda _: captions)
    source = Cider(CiderParams(tokenizer="lower_split"))
    parts = {"cider": ingredient(judged_corpus, source, 1)}
    params = TuneFuseParams(parts=("cider",), altered=6, altered_score=0.25, **FAST)
    plain = TuneFuseParams(parts=("cider",), **FAST)
    tune_fuse(plain, parts, judged_corpus, tmp_path / "plain", Runtime(threads=1))
    tune_fuse(params, parts, judged_corpus, tmp_path / "fuse", Runtime(threads=1))
    pairs = pq.read_table(tmp_path / "fuse" / "altered.parquet").to_pylist()
    assert [p["score"] for p in pairs] == [0.25] * 6 + [1.0] * 2
    assert [p["first"] == p["second"] for p in pairs] == [False] * 6 + [True] * 2
    scores = pq.read_table(tmp_path / "fuse" / "altered-cider.parquet")["max 0"].to_numpy()
    assert (scores[:6] < scores[6:].min()).all()
    models = [read_model(tmp_path / name).heads for name in ("plain", "fuse")]
    assert np.array_equal(models[0]["set"].trees.values, models[1]["set"].trees.values)
    assert not np.array_equal(models[0]["single"].trees.values, models[1]["single"].trees.values)


def test_a_corpus_without_val(judged_corpus: Corpus, tmp_path: Path) -> None:
    few = Corpus.from_captions([Caption("coco:7", "coco:1", "val", "a dog", "")])
    with pytest.raises(CheckError, match=r"the corpus lacks coco:.*Karpathy"):
        tune_fuse(TuneFuseParams(parts=("cider",)), parts_of(few), few, tmp_path / "fuse", Runtime())


def test_a_fuse_of_itself_is_refused(small_project: Any, tmp_path: Path) -> None:
    """Check the refusal before any work: the label's model is the output folder itself."""
    from tests.relabel.sources.fuse.test_fuse import model_for

    from relabel.config import load_config
    from relabel.stages import Project
    from relabel.stages.best import check_excludes_fuse

    model_for(small_project, ["cider"], tmp_path / "model")
    sources = {label: params.model_dump() for label, params in small_project.config.sources.items()}
    fuse = {"source": "fuse", "model": str(tmp_path / "model")}
    config = load_config(None, [], {"sources": sources | {"fuse": fuse}, "tune.fuse.parts": ["cider", "fuse"]})
    ingest = small_project.config.ingest.model_copy(update={"dataset": "coco"})
    layout = small_project.labels
    project = Project(config.model_copy(update={"ingest": ingest}), small_project.runtime, layout)
    with pytest.raises(UsageError, match="part fuse is made of the fuse that is to be fitted"):
        check_excludes_fuse(project, "fuse", tmp_path / "model")
    check_excludes_fuse(project, "fuse", tmp_path / "elsewhere")


def test_references_are_the_first_five(judged_corpus: Corpus) -> None:
    references, captions = JudgedPairs.of("sits", judged_corpus).directions[0]
    assert isinstance(references, References)
    assert (np.diff(references.indptr) == 5).all()
    assert len(captions) == 200
