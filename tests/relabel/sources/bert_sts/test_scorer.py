"""Contract: the scorer returns the scores of CrossEncoder.predict for any architecture and length. The score of a pair
depends on that pair only, not on batch, order or threads. A model without a single score is refused in one line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from relabel.sources.models.packed_layers import can_pack
from sentence_transformers import CrossEncoder

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.sources.bert_sts import scorer as module
from relabel.sources.bert_sts.scorer import Output, PairScorer
from relabel.sources.bert_sts.token_pairs import Texts, truncated_lengths
from relabel.sources.cosine import ComputeType

TEXTS = [
    "A man rides a bike.",
    "a",
    "🐶🚲 two dogs 👨‍👩‍👧",
    "שני כלבים",
    "two men " * 40,
    "!!!",
    "A dog runs " * 12,
    "naïve café",
]
FIRST, SECOND = (a.reshape(-1) for a in np.mgrid[: len(TEXTS), : len(TEXTS)])
FASTEST = "batches of equal length" + (", packed layers" if can_pack() else "")


def load(
    folder: Path,
    dtype: ComputeType = "float32",
    output: Output | None = None,
    scale: float | None = None,
    max_length: int | None = None,
    threads: int = 2,
) -> PairScorer:
    return PairScorer(folder, max_length, output, scale, dtype, Runtime(device="cpu", threads=threads))


def expected_scores(folder: Path, **options: Any) -> np.ndarray:
    """Score by sentence-transformers, one pair per batch, as the oracle."""
    model = CrossEncoder(str(folder), device="cpu", **options)
    pairs = [(TEXTS[a].strip(), TEXTS[b].strip()) for a, b in zip(FIRST, SECOND, strict=True)]
    return np.asarray(model.predict(pairs, batch_size=1, show_progress_bar=False), np.float64)


def scores(subject: PairScorer) -> np.ndarray:
    return subject.score(Texts.of(subject.tokenize(TEXTS)), FIRST, SECOND)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_equals_sentence_transformers(make_cross: Any, kind: str) -> None:
    folder = make_cross(kind)
    subject = load(folder)
    assert subject.backend == FASTEST, subject.left_out
    assert subject.output == "sigmoid"
    expected = expected_scores(folder, max_length=subject.limit)
    assert np.ptp(expected) > 0.05, "all pairs score alike: nothing is tested"
    np.testing.assert_allclose(scores(subject), expected, atol=1e-5)
    half = load(folder, "bfloat16")
    np.testing.assert_allclose(scores(half), expected, atol=0.05)
    assert np.abs(scores(half) - expected).max() > 1e-6, "this was not computed in bfloat16"


def test_long_pairs_are_truncated_as_by_tokenizers(make_cross: Any) -> None:
    folder = make_cross()
    subject = load(folder, max_length=21)
    np.testing.assert_allclose(scores(subject), expected_scores(folder, max_length=21), atol=1e-5)
    with pytest.raises(UsageError, match="66 positions"):
        load(folder, max_length=67)


def test_truncation_equals_an_explicit_loop() -> None:
    first, second = (a.reshape(-1).astype(np.int64) for a in np.mgrid[:12, :12])
    for room in (5, 8, 9):
        lengths = truncated_lengths(first, second, room)
        for a, b, x, y in zip(first.tolist(), second.tolist(), *(f.tolist() for f in lengths), strict=True):
            if a + b <= room:
                assert (x, y) == (a, b)
            else:
                assert x + y == room
                assert x >= min(a, room // 2)
                assert y >= min(b, room // 2)


def test_output_of_the_configuration(make_cross: Any) -> None:
    raw = make_cross(activation="torch.nn.modules.linear.Identity")
    subject = load(raw)
    assert (subject.output, subject.scale) == ("raw", 5.0)
    np.testing.assert_allclose(scores(subject), np.clip(expected_scores(raw) / 5, 0, 1), atol=1e-5)
    np.testing.assert_allclose(scores(load(raw, scale=2.0)), np.clip(expected_scores(raw) / 2, 0, 1), atol=1e-5)
    np.testing.assert_allclose(scores(load(raw, output="sigmoid")), 1 / (1 + np.exp(-expected_scores(raw))), atol=1e-5)
    with pytest.raises(UsageError, match="ends in Tanh"):
        load(make_cross(activation="torch.nn.modules.activation.Tanh"))


def test_a_score_depends_on_its_pair_only(make_cross: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = load(make_cross(), threads=1)
    texts, expected = Texts.of(subject.tokenize(TEXTS)), scores(subject)
    order = np.random.default_rng(0).permutation(len(FIRST))
    np.testing.assert_array_equal(subject.score(texts, FIRST[order], SECOND[order]), expected[order])
    for i in order[:12]:
        np.testing.assert_array_equal(subject.score(texts, FIRST[i : i + 1], SECOND[i : i + 1]), expected[i : i + 1])
    monkeypatch.setitem(module._TOKENS, "cpu", 200)
    np.testing.assert_array_equal(scores(load(make_cross(), threads=3)), expected)


def test_models_without_a_single_score_are_refused(make_cross: Any, minilm: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 labels") as caught:
        load(make_cross(labels=2))
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"no cross-encoder.*tune bert_sts"):
        load(minilm)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckError, match=r"config\.json"):
        load(tmp_path)
    for path in make_cross().iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 64)
    with pytest.raises(CheckError, match="cannot load this model") as caught2:
        load(tmp_path)
    assert "\n" not in str(caught2.value)


@pytest.mark.skipif(not can_pack(), reason="this torch has no oneDNN operators to pack with")
def test_incorrect_packed_layers_are_not_used(make_cross: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: Any, dtype: Any) -> int:
        model.classifier.weight.data.neg_()
        return 1

    monkeypatch.setattr(module, "pack", wrong)
    subject = load(make_cross())
    assert subject.backend == "batches of equal length"
    assert "packed layers" in subject.left_out[0]
    np.testing.assert_allclose(scores(subject), expected_scores(make_cross()), atol=1e-5)


def test_nothing_is_printed(make_cross: Any, capfd: pytest.CaptureFixture[str]) -> None:
    scores(load(make_cross()))
    assert capfd.readouterr() == ("", "")


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_gpu_equals_cpu(make_cross: Any, dtype: ComputeType, tolerance: float) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    subject = PairScorer(make_cross(), None, None, None, dtype, Runtime(device="cuda"))
    np.testing.assert_allclose(scores(subject), expected_scores(make_cross()), atol=tolerance)
