"""Contract: a fuse is fitted to val's judged pairs only, by the judge's protocol. Parts that were tuned on val
contribute out-of-fold predictions. A fuse of itself is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.fuse.fixtures import Table

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.datasets import cxc
from relabel.datasets.cxc import HumanScores
from relabel.sources.base import Source
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.fuse import tune
from relabel.sources.fuse.fit import TuneFuseParams
from relabel.sources.fuse.model import read_model
from relabel.sources.fuse.tune import (
    OUT_OF_FOLD,
    FuseInput,
    altered_pairs,
    find_out_of_fold,
    judged_pairs,
    tune_fuse,
)
from relabel.sources.meteor import Meteor, MeteorParams
from relabel.sources.relevance import Relevance
from relabel.sources.sbert import Sbert, SbertParams
from relabel.store.artefact import Recipe, build
from relabel.store.files import sha256_file
from relabel.store.manifest import version_of
from relabel.store.workdir import Work


def test_val_and_test_share_no_image() -> None:
    """Check the images of SITS and the images of the captions of the other tasks."""
    val, test = cxc.image_ids("val"), cxc.image_ids("test")
    assert len(val) == len(test) == 5000
    assert not np.intersect1d(val, test).size
    captions = [set(cxc.human_scores(t, s).left) for s in ("val", "test") for t in ("sits", "sts")]
    assert not (captions[0] | captions[1]) & (captions[2] | captions[3])


# Pairs


@pytest.fixture
def judged_corpus(monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """Return 40 images of val with 5 captions each, and 200 judged pairs of each task."""
    captions = [Caption(f"coco:{n}", f"coco:{n // 10}", "val", f"caption {n}", "") for n in range(400) if n % 10 < 5]

    def scores(task: str, split: str) -> HumanScores:
        assert split == "val", "a fit may read nothing but val"
        random = np.random.default_rng(5 if task == "sits" else 6)
        m, p, other = random.integers(0, 40, 200), random.integers(0, 5, 200), random.integers(0, 40, 200)
        left, right = ([f"coco:{n}" for n in side] for side in (m * 10 + p, other if task == "sits" else other * 10))
        same, differing = ("c2i_original", "c2i_intrasim") if task == "sits" else ("c2c_cocaption", "c2c_isim")
        method = [same if one else differing for one in m == other]
        return HumanScores(task, "val", left, right, random.random(200) * 5, method)  # type: ignore[arg-type]

    monkeypatch.setattr("relabel.sources.fuse.tune.human_scores", scores)
    return Corpus.from_captions(captions)


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


def test_a_part_tuned_on_val_without_folds_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "tuned", Recipe("sentence_encoder", "tuned", dict, {"cxc sits val": "x"}, lambda work: None))
    with pytest.raises(UsageError, match=r"tuned on val and left no predictions.*--folds"):
        find_out_of_fold(Sbert(SbertParams(model=str(tmp_path / "tuned"))))
    build(tmp_path / "other", Recipe("sentence_encoder", "other", dict, {"stsb": "x"}, lambda work: None))
    assert find_out_of_fold(Sbert(SbertParams(model=str(tmp_path / "other")))) is None
    assert find_out_of_fold(Sbert(SbertParams())) is None


def test_a_free_label_is_a_part(judged_corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tune.fuse.free_parts: meteor is not among the parts cider"):
        build(
            tmp_path / "fuse",
            tune_fuse(TuneFuseParams(parts=("cider",), free_parts=("meteor",)), {}, judged_corpus, Runtime()),
        )


def test_altered_captions_join_sts(judged_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its copy, every fifth with itself; the head of sets is as without."""
    captions = [f"a {colour} dog {where} a big cat" for colour in ("red", "black", "old") for where in ("on", "near")]
    monkeypatch.setattr("relabel.sources.fuse.tune.read_train_captions", lambda _: captions)
    source = Cider(CiderParams(tokenizer="lower_split"))
    parts = {"cider": ingredient(judged_corpus, source, 1)}
    params = TuneFuseParams(parts=("cider",), altered_pairs=6)
    plain = TuneFuseParams(parts=("cider",))
    build(tmp_path / "plain", tune_fuse(plain, parts, judged_corpus, Runtime(threads=1)))
    build(tmp_path / "fuse", tune_fuse(params, parts, judged_corpus, Runtime(threads=1)))
    added = altered_pairs(params, parts, Runtime(threads=1))
    assert added.human.tolist() == [0.65] * 6 + [1.0] * 2
    assert added.values.shape == (8, 2, 1)
    assert (added.values[:6] < added.values[6:].min()).all()
    models = [read_model(tmp_path / name).heads for name in ("plain", "fuse")]
    assert models[0]["set"] == models[1]["set"]
    assert models[0]["single"] != models[1]["single"]


def test_a_corpus_without_val(judged_corpus: Corpus, tmp_path: Path) -> None:
    few = Corpus.from_captions([Caption("coco:7", "coco:1", "val", "a dog", "")])
    with pytest.raises(CheckError, match=r"the corpus lacks coco:.*Karpathy"):
        build(tmp_path / "fuse", tune_fuse(TuneFuseParams(parts=("cider",)), parts_of(few), few, Runtime()))


def test_a_fuse_of_itself_is_refused(small_project: Any, tmp_path: Path) -> None:
    """Check the refusal before any work: the label's model is the output folder itself."""
    from tests.relabel.sources.fuse.test_fuse import model_for

    from relabel.config import load_config
    from relabel.stages import Project
    from relabel.stages import tune_fuse as tune_stage

    model_for(small_project, ["cider"], tmp_path / "model")
    sources = {label: params.model_dump() for label, params in small_project.config.sources.items()}
    fuse = {"source": "fuse", "model": str(tmp_path / "model")}
    config = load_config(None, [], {"sources": sources | {"fuse": fuse}, "tune.fuse.parts": ["cider", "fuse"]})
    ingest = small_project.config.ingest.model_copy(update={"dataset": "coco"})
    layout = small_project.labels
    project = Project(config.model_copy(update={"ingest": ingest}), small_project.runtime, layout)
    with pytest.raises(UsageError, match="part fuse is made of the fuse that is to be fitted"):
        tune_stage(project, tmp_path / "model")
