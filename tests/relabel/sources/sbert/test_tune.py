"""Contract: `tune sbert` writes a folder that the source sbert loads, trained on val only, with the same bytes on
every run, on any number of threads and after a kill. The model of a fold has not seen the fold, its out-of-fold
predictions use the judge's pooling, and the model is the mean of those of the folds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from tests.relabel.sources.sbert.tiny_encoder import small_corpus, small_scores, tiny_encoder, use_small_scores

from relabel.core.runtime import Runtime
from relabel.sources.sbert import tune as sbert_tune
from relabel.sources.sbert.tune import TuneSbertParams, tune_sbert
from relabel.sources.sbert.tune_data import cut_folds, read_judged_pairs
from relabel.stages.verify import verify
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, open_artefact, read_manifest

PARAMS: dict[str, Any] = {"epochs": 3, "learning_rate": 3e-3, "layers": 2, "seed": 5}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_scores(monkeypatch)
    monkeypatch.setattr("relabel.sources.sbert.tune_data._BATCH_IMAGES", 6)


def tune(base: Path, out: Path, threads: int = 1, **params: Any) -> tuple[Manifest, bool]:
    chosen = TuneSbertParams(**PARAMS | {"base": str(base)} | params)
    return build(out, tune_sbert(chosen, small_corpus(), Runtime(threads=threads, device="cpu")))


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_the_model_learns(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    manifest, built = tune(base, out)
    assert built
    assert manifest == open_artefact(out, "sentence_encoder")
    assert manifest.inputs.keys() == {"base", "corpus", "cxc sts val", "cxc sits val"}
    val = manifest.metadata["val"]
    assert val["seen"]["sts"]["all"] > val["base"]["sts"]["all"]
    assert tune(base, out) == (manifest, False)
    before = weights(out)
    assert tune(base, out, seed=6)[1]
    assert weights(out) != before


class KilledError(Exception):
    pass


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the training of the second of three folds; every fold learns from the images of the others alone."""
    tune(base, tmp_path / "whole", folds=3)
    judged, learn, seen, kill = read_judged_pairs(small_corpus(), {}), sbert_tune.train, list[set[int]](), [1]

    def train(encoder: Any, batches: Any, *rest: Any) -> Any:
        seen.append({int(judged.image[c]) for batch in batches for c in batch.texts})
        losses = learn(encoder, batches, *rest)
        if len(seen) - 1 in kill:
            raise KilledError
        return losses

    monkeypatch.setattr(sbert_tune, "train", train)
    with pytest.raises(KilledError):
        tune(base, tmp_path / "killed", folds=3)
    assert not (tmp_path / "killed").exists()
    tune(base, tmp_path / "killed", threads=2, folds=3)
    files = [read_manifest(tmp_path / name).files for name in ("killed", "whole")]
    assert files[0] == files[1]
    fold = cut_folds(judged, 3, PARAMS["seed"])
    assert seen == [set(np.flatnonzero(fold != k).tolist()) for k in (0, 1, 1, 2)]


def test_folds(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    manifest, _ = tune(base, out, folds=3)
    assert not verify([out]).problems
    assert set(manifest.metadata["val"]) == {"base", "out_of_fold"}
    merged, *folds = (load_file(out / name / "model.safetensors") for name in ("", "fold-0", "fold-1", "fold-2"))
    for name, values in merged.items():
        np.testing.assert_allclose(values, sum(fold[name] for fold in folds) / 3, atol=1e-7)
    assert len({weights(out / f"fold-{k}") for k in range(3)} | {weights(out)}) == 4
    table = iter(pq.read_table(out / "out_of_fold.parquet").to_pylist())
    corpus, judged = small_corpus(), read_judged_pairs(small_corpus(), {})
    image_of = {c: corpus.image_ids[i] for c, i in zip(corpus.caption_ids, corpus.image, strict=True)}
    fold = dict(zip(corpus.image_ids, cut_folds(judged, 3, PARAMS["seed"]).tolist(), strict=False))
    vectors = [_vectors(out / f"fold-{k}", corpus.texts, corpus.caption_ids) for k in range(3)]
    for task in ("sts", "sits"):
        human = small_scores()(task, "val")  # type: ignore[arg-type]
        for left, right, score, method in zip(human.left, human.right, human.score, human.method, strict=True):
            k, other = fold[image_of[left]], fold[image_of[right] if task == "sts" else right]
            if k != other:
                continue
            references = [right] if task == "sts" else [c for c in corpus.caption_ids if image_of[c] == right]
            cosines = [float(vectors[k][left] @ vectors[k][c]) for c in references]
            row = next(table)
            assert (row.pop("max"), row.pop("mean")) == pytest.approx((max(cosines), np.mean(cosines)), abs=1e-5)
            names = {"task": task, "left": left, "right": right, "human": score, "method": method, "fold": k}
            assert row == names
    assert next(table, None) is None


def _vectors(folder: Path, texts: list[str], ids: list[str]) -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return dict(zip(ids, model.encode(texts, normalize_embeddings=True), strict=True))
