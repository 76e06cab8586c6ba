"""Contract: captions, features and labels are joined by id. A batch holds the labels of exactly its captions, for
every sampler and for a plan.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.relabel.export.formats import with_params
from tests.relabel_train.reference.runs import Run

from relabel import stages
from relabel.stages import Session, open_corpus
from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches
from relabel_train.reference.data import Batch, PlannedBatches, SampledBatches, open_corpus_features, read_split
from relabel_train.reference.evaluate import _graded
from relabel_train.reference.models.base import Vocabulary
from relabel_train.reference.models.vsepp import VSEPP
from relabel_train.reference.options import EvalOptions, FitError, FitOptions

SAMPLERS = [{"name": "random"}, {"name": "neighbour", "k": 3}, {"name": "graded", "group": 4}]


def batches(options: FitOptions, verify: bool = True) -> SampledBatches:
    features = open_corpus_features(options.features, options.captions)
    split = read_split(options.captions, options.split, features)
    lookup = None if options.lookup is None else open_lookup(options.lookup, verify=verify)
    loaded = SampledBatches(split, features, lookup, options.pooling, paired=True)
    loaded.draw(options.sampler, options.batch_size, seed=0)
    return loaded


def planned(run: Run, folder: Path, verify: bool = True) -> PlannedBatches:
    options = run(lookup=None)
    features = open_corpus_features(options.features, options.captions)
    split = read_split(options.captions, options.split, features)
    return PlannedBatches(split, features, open_batches(folder, verify=verify))


def read(loaded: SampledBatches | PlannedBatches, batch: Any, scale: float = 1.0) -> tuple[VSEPP, Batch]:
    """Read a batch; return the model that made its tokens as well."""
    model = VSEPP(loaded.features.width, Vocabulary.of(loaded.split.texts, 1), 4, 4)
    return model, loaded.read(batch, model, scale, torch.device("cpu"))


def assert_matches(loaded: SampledBatches, rows: Any, scale: float, session: Session) -> None:
    """Check that a batch holds the labels, the features and the words of its rows."""
    (model, batch), lookup, corpus = read(loaded, rows, scale), loaded.lookup, open_corpus(session)
    assert lookup is not None
    labels: Any = batch.labels
    np.testing.assert_allclose(labels.relevance, lookup.block(rows) / scale)
    np.testing.assert_allclose(labels.between_captions, lookup.block(rows, pooling="first") / scale)
    both = lookup.block(rows) + lookup.block(rows).T
    np.testing.assert_allclose(labels.between_images, both / 2 / scale, rtol=1e-6)
    np.testing.assert_array_equal(labels.same_image, lookup.same_image(rows))
    for i, row in enumerate(rows.tolist()):
        vectors, _ = loaded.features.take(loaded.features.rows_of([corpus.image_ids[corpus.image[row]]]))
        np.testing.assert_array_equal(batch.features[i], vectors[0])
        tokens, lengths = model.tokens([corpus.texts[row]])
        assert batch.tokens[i, : lengths[0]].tolist() == tokens[0].tolist()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_batch_matches_its_rows(run: Run, small_project: Session, sampler: dict[str, Any]) -> None:
    loaded = batches(run(sampler=sampler))
    assert loaded.epoch(0)
    for rows in loaded.epoch(0):
        assert_matches(loaded, rows, 2.0, small_project)


def test_a_caption_without_a_label_is_in_no_batch_or_metric(run: Run, small_project: Session, tmp_path: Path) -> None:
    options, corpus, bad = run(batch_size=8, lookup=tmp_path / "lookup"), open_corpus(small_project), 4
    folder = shutil.copytree(run().lookup or "", tmp_path / "lookup")
    np.save(folder / "failed.npy", np.array([bad], np.int32))
    body = json.loads((folder / "lookup.json").read_text(encoding="utf-8"))
    body["failed"], body["arrays"]["failed"]["shape"] = 1, [1]
    (folder / "lookup.json").write_text(json.dumps(body), encoding="utf-8")
    loaded = batches(options, verify=False)
    labels, split = loaded.lookup, loaded.split
    assert labels is not None
    excluded = np.flatnonzero(corpus.image == corpus.image[bad])  # its caption represents the image
    expected = np.setdiff1d(labels.rows_of(split.caption_ids), excluded).tolist()
    assert sorted(np.concatenate(loaded.epoch(0)).tolist()) == expected
    assert (loaded.note or "").startswith(f"{len(excluded)} captions have no label")
    for rows in loaded.epoch(0):
        assert_matches(loaded, rows, 1.0, small_project)
    rng = np.random.default_rng(0)
    sizes = len(split.image_ids), len(split.texts)
    scores = rng.normal(size=sizes).astype(np.float32)
    options = EvalOptions(run=Path("run"), features=Path("features"), captions=Path("corpus"), graded=0)
    report = _graded(labels, split, scores, options)
    assert (report.images, report.captions) == (sizes[0] - 1, len(expected))
    assert "NaN" not in json.dumps(report.to_json())


def plan_of(session: Session, split: str) -> Path:
    """Precompute batches of a split and return their folder."""
    session = with_params(session, "batches", batch_size=16, epochs=1, drop_last=False)
    job = stages.batches_export(session, "cbow", split)
    job.run()
    return job.out


def test_batches_of_a_plan(run: Run, small_project: Session, tmp_path: Path) -> None:
    """Check its labels, that a caption of another split is named, and a damaged label."""
    damaged = shutil.copytree(plan_of(small_project, "train"), tmp_path / "batches")
    loaded, plan = planned(run, damaged), open_batches(damaged)
    assert len(loaded.epoch(0)) == len(plan) > 3
    for number in loaded.epoch(0):
        assert torch.equal(read(loaded, number)[1].labels.relevance, plan.tensors(number).relevance)  # type: ignore[arg-type]
    everything, splits = planned(run, plan_of(small_project, "all")), open_corpus(small_project).splits
    outside = next(n for n in everything.epoch(0) if everything.plan.rows(n).max() >= splits["train"].stop)
    with pytest.raises(FitError, match=r"the caption in row \d+ "):
        read(everything, outside)
    (file,) = damaged.glob("blocks-*.npy")
    blocks, names = np.load(file), plan.names(0)[0]
    blocks[0, 1, 2] = np.nan
    np.save(file, blocks)
    with pytest.raises(FitError, match=f"caption {names[2]} for the image of {names[1]} is nan"):
        read(planned(run, damaged, verify=False), 0)


@pytest.mark.parametrize(("fraction", "seed"), [(0.1, 0), (0.3, 0), (0.3, 1), (0.5, 0), (1.0, 0), (1e-3, 0)])
def test_a_fraction_is_a_seeded_share_of_the_images(run: Run, fraction: float, seed: int) -> None:
    """Check that a chosen image keeps all its captions in order, and that a larger share contains a smaller one."""
    options = run()
    features = open_corpus_features(options.features, options.captions)
    split = read_split(options.captions, options.split, features)
    share = split.sample(fraction, seed)
    chosen = set(share.image_ids)
    assert len(share.image_ids) == len(chosen) == max(1, round(fraction * len(split.image_ids)))
    kept = [
        (caption, text, split.image_ids[image])
        for caption, text, image in zip(split.caption_ids, split.texts, split.image, strict=True)
        if split.image_ids[image] in chosen
    ]
    names = [share.image_ids[i] for i in share.image]
    assert list(zip(share.caption_ids, share.texts, names, strict=True)) == kept
    np.testing.assert_array_equal(share.feature, features.rows_of(share.image_ids))
    assert share.digest() == split.sample(fraction, seed).digest()
    assert chosen <= set(split.sample(min(1.0, fraction + 0.2), seed).image_ids)
    if 0.1 < fraction < 1:
        assert chosen != set(split.sample(fraction, seed + 1).image_ids)
    else:
        assert fraction < 1 or share.digest() == split.digest()


def test_mismatches_are_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="relabel ingest"):
        batches(run(captions=tmp_path))
    group = {"name": "graded", "group": 1}
    for changed, said in (
        ({"split": "dev"}, "'dev'"),
        ({"sampler": group}, "group is 1"),
        ({"sampler": {"name": "graded", "k": 3}}, "sampler graded: k: .*group"),
        ({"sampler": "graded", "lookup": None}, "need neighbours"),
    ):
        with pytest.raises(FitError, match=said):
            batches(run(**changed))
