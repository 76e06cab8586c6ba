"""Contract: a gate of GloVe vectors has the threshold of the paper, 0.8. That of any other gate is given by the user,
or is the largest one at which, as at every smaller one tried, the label loses at most 0.005 of Pearson's r on CxC val.
It is chosen on COCO's captions, stored in the data folder and in the encoding, and never inherited from another gate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.sbert import tiny_encoder as tiny

from relabel import stages
from relabel.config import Config
from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.sources.bert_sts.gate import choose_threshold
from relabel.store.artefact import build
from relabel.store.manifest import read_manifest


def r_of(labels: list[float], human: list[float]) -> float:
    return float(np.corrcoef(labels, human)[0, 1])


def gated_labels(coarse: np.ndarray, fine: np.ndarray, threshold: float) -> list[float]:
    """Pool the references of each pair in turn, as the oracle."""
    labels = []
    for near, far in zip(coarse.tolist(), fine.tolist(), strict=True):
        labels.append(max(score if gate >= threshold else 0.0 for gate, score in zip(near, far, strict=True)))
    return labels


@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_the_threshold_is_the_largest_one_that_loses_little(noise: float) -> None:
    draw = np.random.default_rng(3)
    truth = draw.random((300, 5))
    fine, coarse = truth + 0.1 * draw.standard_normal((300, 5)), truth + noise * draw.standard_normal((300, 5))
    human = truth.max(axis=1) + 0.2 * draw.standard_normal(300)
    chosen = choose_threshold(coarse, fine, human)
    ungated = r_of(fine.max(axis=1).tolist(), human.tolist())
    assert chosen["ungated"] == pytest.approx(ungated, abs=1e-4)
    tried = sorted({np.floor(np.quantile(coarse, q) * 1000) / 1000 for q in np.linspace(0, 1, 200)})
    r = [r_of(gated_labels(coarse, fine, t), human.tolist()) for t in tried if t <= coarse.max()]
    kept = next((i for i, one in enumerate(r) if one < ungated - 0.005), len(r)) - 1
    assert chosen["threshold"] == pytest.approx(tried[kept])
    assert chosen["r"] == pytest.approx(r[kept], abs=1e-4)
    assert chosen["refined"] == pytest.approx(np.mean(coarse >= tried[kept]), abs=1e-4)
    assert chosen["refined"] < 1, "nothing was gained"


def test_pairs_without_a_score_are_left_out() -> None:
    coarse, human = np.random.default_rng(0).random((50, 5)), np.arange(50.0)
    expected = choose_threshold(coarse[1:], coarse[1:], human[1:])
    coarse[0, 2] = np.nan
    assert choose_threshold(coarse, coarse, human) == expected


def test_only_a_gate_of_glove_has_the_papers_threshold() -> None:
    near = {"source": "cbow", "vectors": "glove"}
    for gate, given, expected in (
        (near, {}, 0.8),
        (near, {"threshold": 0.4}, 0.4),
        ({"source": "cbow", "vectors": "word2vec"}, {}, None),
        ({"source": "sbert"}, {}, None),
        ({"source": "sbert"}, {"threshold": 0.4}, 0.4),
    ):
        source = Config(sources={"near": gate, "fine": {"source": "bert_sts", "gate": "near", **given}}).source("fine")
        assert source.params.threshold == expected
        assert (source.derived_model(Path("data")) is not None) == (expected is None)


def test_a_threshold_is_chosen_once_and_stored(gated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the label before and after; people have scored captions of COCO only."""
    with pytest.raises(UsageError, match="only captions of coco have human scores"):
        gated(threshold=None)
    session = gated(threshold=0.3)
    fine = session.config.sources["fine"].model_copy(update={"threshold": None})
    config = session.config.model_copy(update={"sources": session.config.sources | {"fine": fine}})
    session = stages.Session(config, session.runtime, tmp_path / "again")
    stages.ingestion(session).run()
    stages.build_encoding(session, "near", "all")
    with pytest.raises(MissingError, match="the threshold of this gate has not been selected"):
        stages.encoding(session, "fine", "all").run()
    monkeypatch.setattr("relabel.sources.bert_sts.gate.human_scores", tiny.small_scores())
    source: Any = session.config.source("fine")
    recipe = source.threshold_recipe(session.config.parts("fine"), tiny.small_corpus(), Runtime(threads=1))
    chosen, built = build(source.gate_folder(session.runtime.data), recipe)
    assert built
    assert chosen.metadata["gate"] == "near"
    manifest = stages.build_encoding(session, "fine", "all")
    relevance: Any = stages.open_label(session, "fine", "all")
    assert manifest.metadata["threshold"] == relevance.threshold == chosen.metadata["threshold"]
    assert read_manifest(session.folder("encodings", "all", "fine")).config["threshold"] == relevance.threshold
