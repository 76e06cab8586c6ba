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
from relabel.stages import Project
from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches
from relabel_train.reference.data import Batches, open_corpus_features, read_split
from relabel_train.reference.evaluate import _graded
from relabel_train.reference.models import Vocabulary, make_model
from relabel_train.reference.options import EvalOptions, FitError, FitOptions

SAMPLERS = {"random": (), "neighbour": ("k=3",), "graded": ("group=4", "depth=8")}


def batches(options: FitOptions, verify: bool = True, world: int = 1) -> Batches:
    features = open_corpus_features(options.features, options.captions, options.ids)
    split = read_split(options.captions, options.split, features)
    model = make_model("vsepp", features.width, Vocabulary.of(split.texts, 1), 4, 4)
    labels = None if options.lookup is None else open_lookup(options.lookup, verify=verify)
    plan = None if options.batches is None else open_batches(options.batches, verify=verify)
    return Batches(options, split, features, model, labels, plan, labels is not None, world=world)


def assert_matches(loaded: Batches, rows: Any, scale: float, project: Project) -> None:
    """Check that a batch holds the labels, the features and the words of its rows."""
    batch, labels, corpus = loaded.make(rows), loaded.labels, project.corpus
    assert labels is not None
    np.testing.assert_allclose(batch.relevance, labels.block(rows) / scale)  # type: ignore[arg-type]
    np.testing.assert_allclose(batch.between_captions, labels.block(rows, pooling="first") / scale)  # type: ignore[arg-type]
    both = labels.block(rows) + labels.block(rows).T
    np.testing.assert_allclose(batch.between_images, both / 2 / scale, rtol=1e-6)  # type: ignore[arg-type]
    np.testing.assert_array_equal(batch.same_image, labels.same_image(rows))
    for i, row in enumerate(rows.tolist()):
        vectors, _ = loaded.features[[corpus.image_ids[corpus.image[row]]]]
        np.testing.assert_array_equal(batch.features[i], vectors[0])
        tokens, lengths = loaded._tokens([corpus.texts[row]])
        assert batch.tokens[i, : lengths[0]].tolist() == tokens[0].tolist()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_batch_matches_its_rows(run: Run, small_project: Project, sampler: str) -> None:
    loaded = batches(run(sampler=sampler, sampler_kwargs=SAMPLERS[sampler], scale=2.0))
    todo = loaded.epoch(0)
    assert len(todo) == len(loaded)
    for rows in todo:
        assert_matches(loaded, rows, 2.0, small_project)


def test_a_caption_without_a_label_is_in_no_batch_or_metric(run: Run, small_project: Project, tmp_path: Path) -> None:
    options, corpus, bad = run(batch_size=8, lookup=tmp_path / "lookup"), small_project.corpus, 4
    folder = shutil.copytree(run().lookup or "", tmp_path / "lookup")
    np.save(folder / "failed.npy", np.array([bad], np.int32))
    body = json.loads((folder / "lookup.json").read_text(encoding="utf-8"))
    body["failed"], body["arrays"]["failed"]["shape"] = 1, [1]
    (folder / "lookup.json").write_text(json.dumps(body), encoding="utf-8")
    loaded = batches(options, verify=False)
    labels, split = loaded.labels, loaded.split
    assert labels is not None
    excluded = np.flatnonzero(corpus.image == corpus.image[bad])  # its caption represents the image
    expected = np.setdiff1d(labels.rows_of(split.caption_ids), excluded).tolist()
    assert sorted(np.concatenate(loaded.epoch(0)).tolist()) == expected
    assert loaded.left_out == len(excluded)
    for rows in loaded.epoch(0):
        assert_matches(loaded, rows, 1.0, small_project)
    rng = np.random.default_rng(0)
    sizes = len(split.image_ids), len(split.texts)
    images, captions = (rng.integers(-9, 10, (n, 6)).astype(np.float32) for n in sizes)  # products are exact
    options = EvalOptions(run=Path("run"), features=Path("features"), captions=Path("corpus"), graded=0)
    report = _graded(labels, split, (images, captions), options)
    assert (report.images, report.captions) == (len(images) - 1, len(expected))
    assert "NaN" not in json.dumps(report.to_json())
    assert _graded(labels, split, images @ captions.T, options).to_json() == report.to_json()


def plan_of(project: Project, split: str) -> Path:
    """Precompute batches of a split and return their folder."""
    project = with_params(project, "batches", batch_size=16, epochs=1, drop_last=False)
    job = stages.export_batches(project, "cbow", split)
    job.run()
    return job.out


def test_batches_of_a_plan(run: Run, small_project: Project, tmp_path: Path) -> None:
    """Check its labels, the processes that share a short batch, and that a damaged label is named."""
    damaged = shutil.copytree(plan_of(small_project, "train"), tmp_path / "batches")
    options = run(lookup=None, batches=damaged)
    planned, plan = batches(options), open_batches(damaged)
    todo = planned.epoch(0)
    assert len(todo) == len(plan) > 3
    for number in todo:
        assert torch.equal(planned.make(number).relevance, plan.tensors(number).relevance)  # type: ignore[arg-type]
    last = plan.epoch(0)[-1]
    assert 2 < len(plan.rows(last)) < 16, "the last batch must be shorter than the others"
    shared = batches(options, world=len(plan.rows(last)) + 1)
    # A process without a share of the last batch would have nothing to encode.
    assert set(todo) - set(shared.epoch(0)) == {last}
    assert len(shared) == len(todo) - 1
    (file,) = damaged.glob("blocks-*.npy")
    blocks, names = np.load(file), plan.names(0)[0]
    blocks[0, 1, 2] = np.nan
    np.save(file, blocks)
    with pytest.raises(FitError, match=f"batches: .*caption {names[2]} for the image of {names[1]} is nan"):
        batches(options, verify=False).make(0)


@pytest.mark.parametrize(("fraction", "seed"), [(0.1, 0), (0.3, 0), (0.3, 1), (0.5, 0), (1.0, 0), (1e-3, 0)])
def test_a_fraction_is_a_seeded_share_of_the_images(run: Run, fraction: float, seed: int) -> None:
    """Check that a chosen image keeps all its captions in order, and that a larger share contains a smaller one."""
    options = run()
    features = open_corpus_features(options.features, options.captions, options.ids)
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


def test_mismatches_are_named(run: Run, small_project: Project, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="relabel ingest"):
        batches(run(captions=tmp_path))
    graded = {"sampler": "graded", "sampler_kwargs": ("group=1", "depth=8")}
    for changed, said in (({"split": "dev"}, "'dev'"), ({"ids": "position"}, "`ids`"), (graded, "group is 1")):
        with pytest.raises(FitError, match=said):
            batches(run(**changed))
    with pytest.raises(ValueError, match="need neighbours"):
        run(sampler="graded", lookup=None)
    everything = batches(run(lookup=None, batches=plan_of(small_project, "all")))
    splits = small_project.corpus.splits
    outside = next(n for n in everything.epoch(0) if everything.precomputed.rows(n).max() >= splits["train"].stop)  # type: ignore[union-attr]
    with pytest.raises(FitError, match=r"the precomputed caption in row \d+ "):
        everything.make(outside)
