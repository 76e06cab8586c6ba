"""Contract: `tune sbert` writes a folder that the source sbert loads, trained on val only, with the same bytes on
every run, on any number of threads and after a kill. The model of a fold has not seen the fold, its out-of-fold
predictions use the judge's pooling, and the model is the mean of those of the folds. A part `distance` of the way from
the base to the trained weights is gone.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.sbert.tiny_encoder import IMAGES, small_corpus, small_scores, tiny_encoder, use_small_scores

from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.sources.models.files import find_model
from relabel.sources.sbert import tune as sbert_tune
from relabel.sources.sbert.tune import TuneSbertParams, rate_factor, tune_sbert
from relabel.sources.sbert.tune_data import read_judged_set
from relabel.stages.verify import verify
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, open_artefact, read_manifest

PARAMS: dict[str, Any] = {"epochs": 3, "rate": 3e-3, "layers": 2, "seed": 5}


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


def test_the_model_loads_as_sbert(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    manifest, built = tune(base, out)
    assert built
    assert manifest == open_artefact(out, "sentence_encoder")
    assert manifest.inputs.keys() == {"base", "captions", "cxc sts val", "cxc sits val"}
    assert manifest.semantic["seed"] == 5
    assert manifest.facts["trained_on"]["captions"] == 5 * IMAGES
    assert weights(out) != weights(base)
    assert len(manifest.facts["loss"]) == 3
    val = manifest.facts["val"]
    assert val["seen"]["sts"]["all"] > val["base"]["sts"]["all"]
    assert not verify([out]).problems
    assert find_model(str(out)).sha256() != find_model(str(base)).sha256()
    assert tune(base, out) == (manifest, False)
    before = weights(out)
    assert tune(base, out, seed=6)[1]
    assert weights(out) != before


class KilledError(Exception):
    pass


def kill_at_fold(monkeypatch: pytest.MonkeyPatch, fold: int) -> list[int]:
    """Kill the training of a fold after its model; return the list of the folds that are trained."""
    trained: list[int] = []
    learn = sbert_tune.train

    def killing(*arguments: Any) -> list[float]:
        trained.append(len(trained))
        losses = learn(*arguments)
        if len(trained) == fold + 1:
            raise KilledError
        return losses

    monkeypatch.setattr(sbert_tune, "train", killing)
    return trained


def test_a_killed_run_resumes_to_the_same_bytes(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(base, tmp_path / "whole", folds=3)
    with monkeypatch.context() as patch:
        kill_at_fold(patch, 1)
        with pytest.raises(KilledError):
            tune(base, tmp_path / "killed", folds=3)
    assert not (tmp_path / "killed").exists()
    rest = kill_at_fold(monkeypatch, 99)
    tune(base, tmp_path / "killed", threads=2, folds=3)
    assert len(rest) == 2
    files = [read_manifest(tmp_path / name).files for name in ("killed", "whole")]
    assert files[0] == files[1]
    assert "seconds" not in (tmp_path / "whole" / "fold-0" / "training.json").read_text()


def test_folds(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    manifest, _ = tune(base, out, folds=3)
    assert not verify([out]).problems
    facts = json.loads((out / "folds.json").read_text(encoding="utf-8"))
    fold = facts["images"]
    assert (facts["folds"], facts["seed"], len(fold)) == (3, 5, IMAGES)
    table = pq.read_table(out / "out_of_fold.parquet").to_pydict()
    corpus, row = small_corpus(), 0
    image_of = {c: corpus.image_ids[i] for c, i in zip(corpus.caption_ids, corpus.image, strict=True)}
    vectors = {k: _vectors(out / f"fold-{k}", corpus.texts, corpus.caption_ids) for k in range(3)}
    for task in ("sts", "sits"):
        human = small_scores()(task, "val")  # type: ignore[arg-type]
        for left, right, score, method in zip(human.left, human.right, human.score, human.method, strict=True):
            images = image_of[left], image_of[right] if task == "sts" else right
            if fold[images[0]] != fold[images[1]]:
                continue
            v = vectors[fold[images[0]]]
            references = [right] if task == "sts" else [c for c in corpus.caption_ids if image_of[c] == right]
            cosines = sorted(float(v[left] @ v[c]) for c in references)
            row_values = {name: table[name][row] for name in table}
            assert (row_values["task"], row_values["left"], row_values["right"], row_values["method"]) == (
                task,
                left,
                right,
                method,
            )
            assert (row_values["human"], row_values["fold"]) == (score, fold[images[0]])
            assert row_values["max"] == pytest.approx(cosines[-1], abs=1e-5)
            assert row_values["second"] == pytest.approx(cosines[-2] if len(cosines) > 1 else cosines[0], abs=1e-5)
            assert row_values["mean"] == pytest.approx(np.mean(cosines), abs=1e-5)
            row += 1
    assert row == len(table["task"])
    assert set(manifest.facts["val"]) == {"base", "out_of_fold"}
    assert len({weights(out / f"fold-{k}") for k in range(3)} | {weights(out)}) == 4


def test_a_fold_model_sees_no_pair_of_its_fold(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = read_judged_set(small_corpus(), {})
    seen: list[set[int]] = []
    learn = sbert_tune.train

    def watched(encoder: Any, epochs: Any, *arguments: Any) -> list[float]:
        seen.append({int(judged.image[c]) for batches in epochs for batch in batches for c in batch.texts})
        return learn(encoder, epochs, *arguments)

    monkeypatch.setattr(sbert_tune, "train", watched)
    tune(base, tmp_path / "model", folds=2)
    fold = json.loads((tmp_path / "model" / "folds.json").read_text(encoding="utf-8"))["images"]
    for k in range(2):
        assert seen[k] == {i for i, name in enumerate(judged.image_ids) if fold[name] != k}


def _vectors(folder: Path, texts: list[str], ids: list[str]) -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return dict(zip(ids, model.encode(texts, normalize_embeddings=True), strict=True))


def test_the_learning_rate_rises_and_falls() -> None:
    shares = [rate_factor(100, step) for step in range(100)]
    assert max(shares) == pytest.approx(1, abs=1e-3)
    assert shares.index(max(shares)) in (9, 10)
    assert all(a < b for a, b in pairwise(shares[:10]))
    assert all(a > b for a, b in pairwise(shares[10:]))
    assert 0 < shares[-1] < 0.01


def test_invalid_settings_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tune\.sbert\.folds"):
        load_config(None, [], {"tune.sbert.folds": 1})
    with pytest.raises(MissingError, match="no such folder"):
        tune(tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(CheckError, match=r"full: found thesis\.tex"):
        tune(base, tmp_path / "full")
    with pytest.raises(CheckError, match=r"thesis\.tex"):
        tune(base, tmp_path / "full" / "thesis.tex")
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("config.json", "model.safetensors"):
        (broken / name).write_text("{}")
    with pytest.raises(CheckError, match="cannot load this model"):
        tune(broken, tmp_path / "out")
    few = small_corpus(IMAGES - 1)
    with pytest.raises(MissingError, match=f"{IMAGES - 1} of the {IMAGES} images"):
        build(tmp_path / "out", tune_sbert(TuneSbertParams(**PARAMS | {"base": str(base)}), few, Runtime()))
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "full" / "thesis.tex").exists()


def test_with_folds_the_model_is_the_mean_of_theirs(base: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    manifest, _ = tune(base, tmp_path / "model", folds=2)
    merged, *folds = (load_file(tmp_path / "model" / name / "model.safetensors") for name in ("", "fold-0", "fold-1"))
    for name, values in merged.items():
        np.testing.assert_allclose(values, (folds[0][name] + folds[1][name]) / 2, atol=1e-7)
    assert any(not np.array_equal(folds[0][name], folds[1][name]) for name in merged)
    assert set(manifest.facts["val"]) == {"base", "out_of_fold"}


def test_further_judgements(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    monkeypatch.setattr("relabel.sources.sbert.tune_data.locate", lambda name, file, data: tmp_path / f"{name}-{file}")
    (tmp_path / "stsb-stsb-en-train.csv").write_text("a man,a dog,0.0\nthe bus,the red bus,5.0\n" * 5)
    rows = "".join(f"{i}\ta big dog\ttwo cats\t{1 + i % 5}\tNEUTRAL\n" for i in range(10))
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    (tmp_path / "sick-SICK_train.txt").write_text(header + rows)
    manifest, _ = tune(base, tmp_path / "model", sis=0.5, also=("stsb", "sick"))
    assert manifest.inputs.keys() >= {"cxc sis val", "stsb train", "sick train"}
    assert manifest.facts["trained_on"]["pairs"].items() >= {"stsb": 10, "sick": 10, "sis": IMAGES}.items()
    assert manifest.facts["trained_on"]["captions"] == 5 * IMAGES
    tune(base, tmp_path / "plain")
    assert weights(tmp_path / "model") != weights(tmp_path / "plain")


def test_the_distance_from_the_base(base: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    tune(base, tmp_path / "whole")
    tune(base, tmp_path / "half", distance=0.5)
    start, whole, half = (load_file(p / "model.safetensors") for p in (base, tmp_path / "whole", tmp_path / "half"))
    for name, values in half.items():
        np.testing.assert_allclose(values, (start[name] + whole[name]) / 2, atol=1e-6)
    assert any(not np.array_equal(start[name], whole[name]) for name in start)
