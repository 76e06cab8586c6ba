"""Contract: captions, features and labels are joined by id. A batch holds the labels of exactly its captions, for
every sampler, for a plan and for the share of a process.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from relabel import stages
from relabel.export.params import ExportBatchesParams
from relabel.stages import Project
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.precomputed import open_batches
from relabel_train.reference.data import Batch, Batches, read_split
from relabel_train.reference.evaluate import _graded
from relabel_train.reference.features import open_features
from relabel_train.reference.models import Vocabulary, make_model
from relabel_train.reference.options import FitError, FitOptions


def batches(
    options: FitOptions, paired: bool = False, rank: int = 0, world: int = 1, labels: Lookup | None = None
) -> Batches:
    features = open_features(options.data, namespace=options.namespace)
    split = read_split(options.captions, options.split, features)
    model = make_model("vsepp", features.width, Vocabulary.of(split.texts, 1), 4, 4)
    if labels is None and options.labels is not None:
        labels = open_lookup(options.labels)
    plan = open_batches(options.batches) if options.batches is not None else None
    return Batches(options, split, features, model, labels, plan, paired, rank, world)


@pytest.mark.parametrize(
    ("sampler", "given"), [("random", ()), ("neighbour", ("k=3",)), ("graded", ("group=4", "depth=8"))]
)
def test_a_batch_matches_its_rows(
    run: Callable[..., FitOptions], small_project: Project, sampler: str, given: tuple[str, ...]
) -> None:
    options = run(sampler=sampler, sampler_kwargs=given, scale=2.0)
    loaded, corpus = batches(options, paired=True), small_project.corpus
    lookup, features = open_lookup(options.labels or ""), open_features(options.data, namespace="coco")
    todo = loaded.epoch(0)
    assert len(todo) == len(loaded)
    for rows in todo:
        batch = loaded.make(rows)
        assert batch.relevance is not None
        assert batch.paired is not None
        np.testing.assert_allclose(batch.relevance, lookup.block(rows) / 2)
        np.testing.assert_allclose(batch.paired, lookup.block(rows, pooling="first") / 2)
        np.testing.assert_array_equal(batch.same_image, lookup.same_image(rows))
        for i, row in enumerate(rows.tolist()):
            vectors, _ = features[[corpus.image_ids[corpus.image[row]]]]
            np.testing.assert_array_equal(batch.features[i], vectors[0])
            tokens, lengths = loaded._tokens([corpus.texts[row]])
            assert batch.tokens[i, : lengths[0]].tolist() == tokens[0].tolist()


def without_encodings(whole: Path, folder: Path, failed: list[int]) -> Lookup:
    """Copy a lookup with some rows marked as failed."""
    shutil.copytree(whole, folder)
    np.save(folder / "failed.npy", np.array(failed, np.int32))
    body = json.loads((folder / "lookup.json").read_text(encoding="utf-8"))
    body["failed"], body["arrays"]["failed"]["shape"] = len(failed), [len(failed)]
    (folder / "lookup.json").write_text(json.dumps(body), encoding="utf-8")
    return open_lookup(folder, verify=False)


def test_captions_without_a_label_are_in_no_batch_and_no_metric(
    run: Callable[..., FitOptions], small_project: Project, tmp_path: Path
) -> None:
    options, corpus, bad = run(batch_size=8), small_project.corpus, 4
    labels = without_encodings(Path(options.labels or ""), tmp_path / "lookup", [bad])
    split = read_split(options.captions, options.split, open_features(options.data, namespace="coco"))
    loaded = batches(options, paired=True, labels=labels)
    excluded = set(np.flatnonzero(corpus.image == corpus.image[bad]).tolist())  # its caption represents the image
    rows_seen = [row for rows in loaded.epoch(0) for row in rows.tolist()]
    assert (excluded & set(rows_seen), loaded.left_out) == (set(), len(excluded))
    assert len(rows_seen) == len(split.texts) - len(excluded)
    for rows in loaded.epoch(0):
        batch = loaded.make(rows)
        for labels_ in (batch.relevance, batch.paired):
            assert labels_ is not None
            assert torch.isfinite(labels_).all()
        for i, row in enumerate(rows.tolist()):
            tokens, lengths = loaded._tokens([corpus.texts[row]])
            assert batch.tokens[i, : lengths[0]].tolist() == tokens[0].tolist()
    rng = np.random.default_rng(0)
    images = rng.normal(size=(len(split.image_ids), 6)).astype(np.float32)
    captions = rng.normal(size=(len(split.texts), 6)).astype(np.float32)
    report = _graded(labels, split, (images, captions), 0)
    assert (report.images, report.captions) == (len(images) - 1, len(captions) - len(excluded))
    assert "NaN" not in json.dumps(report.to_json())
    assert _graded(labels, split, images @ captions.T, 0).to_json() == report.to_json()


def test_batches_without_labels_and_of_a_plan(
    run: Callable[..., FitOptions], small_project: Project, tmp_path: Path
) -> None:
    none = batches(run(labels=None))
    batch: Batch = none.make(none.epoch(0)[0])
    assert batch.relevance is None
    assert batch.same_image.diagonal().all()
    settled = small_project.config.export.model_copy(
        update={"batches": ExportBatchesParams(batch_size=16, epochs=1, drop_last=False)}
    )
    project = replace(small_project, config=small_project.config.model_copy(update={"export": settled}))
    job = stages.export_batches(project, "cbow", "train")
    job.run()
    plan = open_batches(job.out)
    planned = batches(run(labels=None, batches=job.out))
    todo = planned.epoch(0)
    assert len(todo) == len(plan) > 3
    for number in todo:
        assert torch.equal(planned.make(number).relevance, plan.tensors(number).relevance)  # type: ignore[arg-type]
    last = plan.epoch(0)[-1]
    rows = len(plan.rows(last))
    assert 2 < rows < 16, "the last batch must be shorter than the others"
    shared = batches(run(labels=None, batches=job.out), rank=0, world=rows + 1)
    # A process without a share of the last batch would have nothing to encode.
    assert last in planned.epoch(0)
    assert last not in shared.epoch(0)
    assert len(shared) == len(shared.epoch(0)) == len(planned) - 1
    (file,) = Path(shutil.copytree(job.out, tmp_path / "batches")).glob("blocks-*.npy")
    blocks = np.load(file)
    blocks[0, 1, 2] = np.nan
    np.save(file, blocks)
    planned.precomputed = open_batches(tmp_path / "batches", verify=False)
    image, caption = (plan.names(0)[0][i] for i in (1, 2))
    with pytest.raises(FitError, match=f"batches: the label of caption {caption} for the image of {image} is nan"):
        planned.make(0)
    everything = stages.export_batches(project, "cbow", "all")
    everything.run()
    planned, plan = batches(run(labels=None, batches=everything.out)), open_batches(everything.out)
    split = set(small_project.corpus.splits["train"])
    outside = next(n for n in range(len(plan)) if not set(plan.rows(n).tolist()) <= split)
    with pytest.raises(FitError, match="has no features or is not of this split"):
        planned.make(outside)
