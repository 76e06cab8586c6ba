"""Contract: `tune sbert` writes a folder that the source sbert loads, trained on val only, with the same bytes on
every run, on any number of threads and after a kill. The model of a fold has not seen the fold, its out-of-fold
predictions use the judge's pooling, and the model is the mean of those of the folds. A corpus without the judged
captions is refused. An epoch has every pair whose images are in one batch, in one batch alone, and omits no pair of one
image. Vectors and gradients of the last layers equal those of the complete model, and the loss equals explicit loops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from tests.relabel.sources.sbert import tiny_encoder as tiny

from relabel.core.errors import MissingError
from relabel.core.runtime import Runtime
from relabel.sources.sbert import tune as sbert_tune
from relabel.sources.sbert import tune_data
from relabel.sources.sbert.tune import TuneSbertParams, UpperLayers, compute_loss, tune_sbert
from relabel.sources.sbert.tune_data import OTHER_IMAGES, Pairs, cut_folds, read_judged_pairs
from relabel.stages.verify import verify
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, open_artefact, read_manifest

PARAMS: dict[str, Any] = {"epochs": 3, "learning_rate": 3e-3, "seed": 5}
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.use_small_scores(monkeypatch)
    monkeypatch.setattr(tune_data, "_BATCH_IMAGES", 6)


def tune(base: Path, out: Path, threads: int = 1, images: int = tiny.IMAGES, **params: Any) -> tuple[Manifest, bool]:
    chosen = TuneSbertParams(**PARAMS | {"base": str(base)} | params)
    return build(out, tune_sbert(chosen, tiny.small_corpus(images), Runtime(threads=threads, device="cpu")))


def test_the_model_learns(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(MissingError, match="coco:"):
        tune(base, out, images=tiny.IMAGES - 1)
    assert not out.exists()
    manifest, built = tune(base, out)
    assert built
    assert manifest == open_artefact(out, "sentence_encoder")
    assert manifest.inputs.keys() == {"base", "corpus", "cxc sts val", "cxc sits val"}
    val = manifest.metadata["val"]
    assert val["seen"]["sts"]["all"] > val["base"]["sts"]["all"]
    assert tune(base, out) == (manifest, False)
    other, built = tune(base, out, seed=6)
    assert built
    assert other.files[WEIGHTS] != manifest.files[WEIGHTS]


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the training of the second of three folds; every fold learns from the images of the others alone."""
    tune(base, tmp_path / "whole", folds=3)
    judged, learn, seen = read_judged_pairs(tiny.small_corpus(), {}), sbert_tune.train, list[set[int]]()

    def train(encoder: Any, batches: Any, *rest: Any) -> Any:
        seen.append({int(judged.image[c]) for batch in batches for c in batch.texts})
        if len(seen) == 2:
            raise KeyboardInterrupt
        return learn(encoder, batches, *rest)

    monkeypatch.setattr(sbert_tune, "train", train)
    with pytest.raises(KeyboardInterrupt):
        tune(base, tmp_path / "killed", folds=3)
    assert not (tmp_path / "killed").exists()
    tune(base, tmp_path / "killed", threads=2, folds=3)
    assert read_manifest(tmp_path / "killed").files == read_manifest(tmp_path / "whole").files
    fold = cut_folds(judged, 3, PARAMS["seed"])
    assert seen == [set(np.flatnonzero(fold != k).tolist()) for k in (0, 1, 1, 2)]


def test_folds(base: Path, tmp_path: Path) -> None:
    manifest, _ = tune(base, tmp_path, folds=3)
    assert not verify([tmp_path]).problems
    assert set(manifest.metadata["val"]) == {"base", "out_of_fold"}
    parts = [tmp_path / f"fold-{k}" for k in range(3)]
    assert len({(part / WEIGHTS).read_bytes() for part in (tmp_path, *parts)}) == 4
    merged, *folds = (load_file(part / WEIGHTS) for part in (tmp_path, *parts))
    for name, values in merged.items():
        np.testing.assert_allclose(values, sum(fold[name] for fold in folds) / 3, atol=1e-7)
    table = iter(pq.read_table(tmp_path / "out_of_fold.parquet").to_pylist())
    corpus = tiny.small_corpus()
    image_of = {c: corpus.image_ids[i] for c, i in zip(corpus.caption_ids, corpus.image, strict=True)}
    numbers = cut_folds(read_judged_pairs(corpus, {}), 3, PARAMS["seed"]).tolist()
    fold_of = dict(zip(corpus.image_ids, numbers, strict=False))
    models = (SentenceTransformer(str(part), device="cpu") for part in parts)
    encoded = [model.encode(corpus.texts, normalize_embeddings=True) for model in models]
    vectors = [dict(zip(corpus.caption_ids, one, strict=True)) for one in encoded]
    for task in ("sts", "sits"):
        human = tiny.small_scores()(task, "val")  # type: ignore[arg-type]
        for left, right, score, method in zip(human.left, human.right, human.score, human.method, strict=True):
            k, other = fold_of[image_of[left]], fold_of[image_of.get(right, right)]
            if k != other:
                continue
            references = [right] if task == "sts" else [c for c in corpus.caption_ids if image_of[c] == right]
            cosines = [float(vectors[k][left] @ vectors[k][c]) for c in references]
            row = next(table)
            assert (row.pop("max"), row.pop("mean")) == pytest.approx((max(cosines), np.mean(cosines)), abs=1e-5)
            assert row == {"task": task, "left": left, "right": right, "human": score, "method": method, "fold": k}
    assert next(table, None) is None


def listed(pairs: Pairs) -> list[tuple[list[int], list[int], float]]:
    return sorted(zip(pairs.left.tolist(), pairs.right.tolist(), pairs.score.tolist(), strict=True))


def test_a_batch_has_the_pairs_among_its_images() -> None:
    corpus, human = tiny.small_corpus(), tune_data.human_scores("sits", "val")
    judged = read_judged_pairs(corpus, {})
    assert "never read" not in judged.texts
    sits, other = judged.pairs["sits"], judged.pairs[OTHER_IMAGES]
    for i, (caption, image, score) in enumerate(zip(human.left, human.right, human.score, strict=True)):
        assert judged.texts[sits.left[i, 0]] == corpus.texts[corpus.caption_ids.index(caption)]
        assert corpus.image_ids[sits.images[i, 1]] == image
        assert sits.right[i].tolist() == np.flatnonzero(judged.image == sits.images[i, 1])[:5].tolist()
        assert sits.score[i] == score / 5
    assert (other.images[:, 0] != other.images[:, 1]).all()
    assert len(other.score) == sum(m != "c2i_original" for m in human.method)
    images, kinds = np.arange(2, tiny.IMAGES), ("sts", "sits", OTHER_IMAGES, "sis")
    epoch = tune_data.epoch_batches(judged, kinds, images, seed=3, epoch=0)
    groups = [set(judged.image[batch.texts].tolist()) for batch in epoch]
    assert len(groups) == 4
    assert sorted(i for group in groups for i in group) == images.tolist()
    for batch, inside in zip(epoch, groups, strict=True):
        assert list(batch.pairs) == list(kinds)
        for kind, given in batch.pairs.items():
            every = judged.pairs[kind]
            both = [i for i, (a, b) in enumerate(every.images.tolist()) if a in inside and b in inside]
            found = Pairs(batch.texts[given.left], batch.texts[given.right], given.score, given.images)
            assert listed(found) == listed(every.take(np.array(both, np.int64)))


@pytest.mark.parametrize(("layers", "learning"), [(1, {2}), (2, {1, 2}), (0, {0, 1, 2}), (99, {0, 1, 2})])
def test_the_gradient_of_the_complete_model(base: Path, layers: int, learning: set[int]) -> None:
    texts, which = tiny.texts(300), np.arange(0, 300, 2)
    encoder = UpperLayers(base, texts, layers, "float32", Runtime(threads=1, device="cpu"))
    vectors = encoder.vectors(which)
    (vectors @ vectors.T).square().mean().backward()
    encoder._use(*encoder._complete)
    gradients = {name: p.grad.clone() for name, p in encoder.model.named_parameters() if p.grad is not None}
    assert {int(name.partition(".layer.")[2][0]) for name in gradients} == learning
    encoder.model.zero_grad()
    plain = encoder.model(encoder.model.tokenize([texts[i] for i in which]))["sentence_embedding"]
    plain = torch.nn.functional.normalize(plain, dim=-1)
    torch.testing.assert_close(vectors, plain, rtol=0, atol=1e-6)
    (plain @ plain.T).square().mean().backward()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, encoder.model.get_parameter(name).grad, rtol=1e-4, atol=1e-7)


def cosine(v: torch.Tensor, left: np.ndarray, right: np.ndarray) -> float:
    """Return the cosine of a pair: each side's best match, averaged over the left or over both sides of two images."""
    table = np.array([[float(v[a] @ v[b]) for b in right] for a in left])
    return table.max(axis=1).mean() if len(left) == 1 else (table.max(axis=1).mean() + table.max(axis=0).mean()) / 2


def test_each_kind_of_pairs_adds_one_minus_pearson() -> None:
    """Add captions, caption and image, and images; the last two kinds tell nothing and add nothing."""
    draw, weight = np.random.default_rng(0), {"a": 0.3, "b": 1.0, "c": 0.7, "few": 1.0, "constant": 1.0}
    values = torch.randn(20, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v, expected, pairs = torch.nn.functional.normalize(values, dim=-1).requires_grad_(), 0.0, dict[str, Pairs]()
    for kind, left, right, count in (("a", 1, 1, 12), ("b", 1, 5, 12), ("c", 5, 5, 12), ("few", 5, 5, 3)):
        sides = (draw.integers(0, 20, (count, size)) for size in (left, right))
        one = pairs[kind] = Pairs(*sides, draw.random(count), np.zeros((count, 2), np.int64))
        if count > 3:
            cosines = [cosine(v.detach(), a, b) for a, b in zip(one.left, one.right, strict=True)]
            expected += weight[kind] * (1 - np.corrcoef(cosines, one.score)[0, 1])
            assert float(compute_loss(v.detach(), pairs, weight)) == pytest.approx(expected, abs=1e-6)
    pairs["constant"] = Pairs(pairs["a"].left, pairs["a"].right, np.ones(12), pairs["a"].images)
    assert float(compute_loss(v.detach(), pairs, weight)) == pytest.approx(expected, abs=1e-6)
    nothing = compute_loss(v, {kind: pairs[kind] for kind in ("few", "constant")}, weight)
    nothing.backward()  # type: ignore[no-untyped-call]
    assert float(nothing.detach()) == 0
    torch.testing.assert_close(v.grad, torch.zeros_like(v), rtol=0, atol=0)
