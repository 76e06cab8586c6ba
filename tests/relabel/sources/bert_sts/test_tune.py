"""Contract: `tune bert_sts` makes a cross-encoder of any encoder from STS-B pairs. The folder is complete or absent,
and bert_sts and sentence-transformers load it. Training is seeded; a killed run begins again and ends with the same
bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr
from sentence_transformers import CrossEncoder
from tests.relabel.sources.sbert.tiny_encoder import tiny_encoder

from relabel.core.runtime import Runtime
from relabel.datasets.evaluation_sets.stsb import read_stsb
from relabel.sources.bert_sts import tune as tuning
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.sources.bert_sts.tune import TuneBertStsParams, tune_bert_sts
from relabel.sources.models.files import find_model
from relabel.store.artefact import build
from relabel.store.manifest import open_artefact

WORDS = ("dog", "man", "bus", "cats", "street")
PARAMS: dict[str, Any] = {"epochs": 2, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("tiny"), layers=2, spread=0.1)


@pytest.fixture
def stsb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a small STS-B whose score is the number of words, of two, that both sentences have."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 24), ("dev", 12), ("test", 12)):
        lines = []
        for _ in range(count):
            (a, b), (c, d) = draw.choice(WORDS, 2, replace=False), draw.choice(WORDS, 2, replace=False)
            lines.append(f"a {a} on a {b},the {c} with the {d},{2.5 * len({a, b} & {c, d})}\n")
        if split == "train":  # longer than the 40 tokens that the encoder reads
            lines[0] = f"{'a dog ' * 30},the bus,0.0\n"
        (tmp_path / f"{split}.csv").write_text("".join(lines))
    files = {split: tmp_path / f"{split}.csv" for split in ("train", "dev", "test")}
    monkeypatch.setattr(tuning, "find_stsb_files", lambda runtime: files)
    return tmp_path


def tune(base: Path, out: Path, **params: Any) -> Any:
    runtime = Runtime(device="cpu", threads=1)
    return build(out, tune_bert_sts(TuneBertStsParams(base=str(base), **PARAMS | params), runtime))


def test_the_folder_loads_and_is_the_same_after_a_kill(
    base: Path, stsb: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, built = tune(base, tmp_path / "whole")
    assert "".join(capfd.readouterr()) == ""
    assert built
    assert manifest.metadata["steps"] == 4
    assert manifest == open_artefact(tmp_path / "whole", "cross_encoder")
    assert tune(base, tmp_path / "whole") == (manifest, False)

    model = CrossEncoder(str(tmp_path / "whole"), device="cpu")
    for split in ("dev", "test"):
        pairs = read_stsb(stsb / f"{split}.csv")
        scores = model.predict([(p.first, p.second) for p in pairs], show_progress_bar=False)
        expected = pearsonr(scores, [p.score for p in pairs])[0]
        # The scores of this model differ by 1e-3, and are rounded before they are correlated.
        assert manifest.metadata["stsb"][split]["pearson"] == pytest.approx(expected, abs=2e-2)
    scorer = PairScorer(find_model(str(tmp_path / "whole")).folder, BertStsParams(), Runtime(threads=1))
    assert scorer.output == "sigmoid"

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "save_model", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(base, tmp_path / "killed")
    assert not (tmp_path / "killed").exists()
    assert tune(base, tmp_path / "killed")[0].files == manifest.files
    assert tune(base, tmp_path / "other", seed=1)[0].files["model.safetensors"] != manifest.files["model.safetensors"]


@pytest.mark.slow
def test_training_learns_the_scores(base: Path, stsb: Path, tmp_path: Path) -> None:
    """Check the agreement on pairs that the model has seen."""
    (stsb / "dev.csv").write_bytes((stsb / "train.csv").read_bytes())
    manifest, _ = tune(base, tmp_path / "out", epochs=80, learning_rate=3e-3)
    assert manifest.metadata["stsb"]["dev"]["pearson"] > 0.6
