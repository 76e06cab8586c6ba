"""Contract: the scorer returns the scores of CrossEncoder.predict for any architecture, on a GPU too. Torch replaces an
OpenVINO that is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from relabel.core.runtime import Runtime
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.sources.models import forward

TEXTS = ["A man rides a bike.", "a", "🐶🚲 two dogs 👨‍👩‍👧", "שני כלבים", "two men" * 40, "!!!", "A dog runs" * 12]
FIRST, SECOND = (a.reshape(-1) for a in np.mgrid[: len(TEXTS), : len(TEXTS)])


def load(folder: Path, threads: int = 2, **params: Any) -> PairScorer:
    return PairScorer(folder, BertStsParams(**params), Runtime(device="cpu", threads=threads))


def expected_scores(folder: Path, **options: Any) -> np.ndarray:
    """Score by sentence-transformers, one pair per batch, as the oracle."""
    model = CrossEncoder(str(folder), device="cpu", **options)
    pairs = [(TEXTS[a], TEXTS[b]) for a, b in zip(FIRST, SECOND, strict=True)]
    return np.asarray(model.predict(pairs, batch_size=1, show_progress_bar=False), np.float64)


def scores(subject: PairScorer) -> np.ndarray:
    return subject.score([TEXTS[a] for a in FIRST], [TEXTS[b] for b in SECOND])


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("roberta", "distilbert")]


@pytest.mark.parametrize("kind", ["bert", *SLOW])
def test_equals_sentence_transformers(make_cross: Any, multiplies_bfloat16: bool, kind: str) -> None:
    folder = make_cross(kind)
    subject = load(folder)
    assert subject.backend == "openvino", subject.left_out
    assert subject.output == "sigmoid"
    expected = expected_scores(folder, max_length=subject.limit)
    assert np.flatnonzero(subject.read(TEXTS).unknown).tolist() == [2, 3]
    assert np.ptp(expected) > 0.05, "all pairs score alike: nothing is tested"
    np.testing.assert_allclose(scores(subject), expected, atol=1e-5)
    half = load(folder, dtype="bfloat16")
    np.testing.assert_allclose(scores(half), expected, atol=0.05)
    if multiplies_bfloat16:
        assert np.abs(scores(half) - expected).max() > 1e-6, "this was not computed in bfloat16"


def test_torch_replaces_an_openvino_that_is_wrong(make_cross: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = forward.openvino_forward
    monkeypatch.setattr(forward, "openvino_forward", lambda *arguments: lambda *inputs: -right(*arguments)(*inputs))
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 0.05)):
        subject = load(make_cross(), dtype=dtype)
        assert subject.backend == "torch"
        assert "an output differs by" in subject.left_out[0]
        np.testing.assert_allclose(scores(subject), expected_scores(make_cross()), atol=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_gpu_equals_cpu(make_cross: Any, dtype: Any, tolerance: float) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    subject = PairScorer(make_cross(), BertStsParams(dtype=dtype), Runtime(device="cuda"))
    np.testing.assert_allclose(scores(subject), expected_scores(make_cross()), atol=tolerance)
