"""Contract: vectors and gradients of the last layers equal those of the complete model, on any number of threads. The
loss equals explicit loops; batches without information have loss 0 and no gradient.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.relabel.sources.sbert.tiny_encoder import texts, tiny_encoder

from relabel.core.runtime import Runtime
from relabel.sources.sbert.tune import UpperLayers, compute_loss
from relabel.sources.sbert.tune_data import Pairs

TEXTS = texts(300)
WHICH = np.arange(0, 300, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("tiny"))


def make(folder: Path, layers: int, threads: int = 1) -> UpperLayers:
    return UpperLayers(folder, TEXTS, layers, "float32", Runtime(threads=threads, device="cpu"))


@pytest.mark.parametrize(("layers", "learning"), [(1, {2}), (2, {1, 2}), (0, {0, 1, 2}), (99, {0, 1, 2})])
def test_the_gradient_of_the_complete_model(folder: Path, layers: int, learning: set[int]) -> None:
    encoder = make(folder, layers)
    vectors = encoder.vectors(WHICH)
    (vectors @ vectors.T).square().mean().backward()
    encoder._use(*encoder._complete)
    gradients = {name: p.grad.clone() for name, p in encoder.model.named_parameters() if p.grad is not None}
    assert {int(name.partition(".layer.")[2][0]) for name in gradients} == learning
    encoder.model.zero_grad()
    plain = encoder.model(encoder.model.tokenize([TEXTS[i] for i in WHICH]))["sentence_embedding"]
    plain = torch.nn.functional.normalize(plain, dim=-1)
    torch.testing.assert_close(vectors, plain, rtol=0, atol=1e-6)
    (plain @ plain.T).square().mean().backward()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, encoder.model.get_parameter(name).grad, rtol=1e-4, atol=1e-7)


def vectors(seed: int = 0) -> torch.Tensor:
    values = torch.randn(20, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(values, dim=-1)


def judged(left: int, right: int, pairs: int = 12, seed: int = 0) -> Pairs:
    draw = np.random.default_rng(seed)
    sides = (draw.integers(0, 20, (pairs, count)) for count in (left, right))
    return Pairs(*sides, draw.random(pairs), np.zeros((pairs, 2), np.int64))


def cosine(v: torch.Tensor, left: np.ndarray, right: np.ndarray) -> float:
    """Return the cosine of a pair: each side's best match, averaged over the left or over both sides of two images."""
    table = np.array([[float(v[a] @ v[b]) for b in right] for a in left])
    return table.max(axis=1).mean() if len(left) == 1 else (table.max(axis=1).mean() + table.max(axis=0).mean()) / 2


@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 5), (5, 5)])
def test_a_kind_of_pairs_adds_one_minus_pearson(left: int, right: int) -> None:
    v, one, other = vectors(), judged(left, right), judged(1, 5, seed=1)
    cosines = [cosine(v, a, b) for a, b in zip(one.left, one.right, strict=True)]
    expected = 0.3 * (1 - np.corrcoef(cosines, one.score)[0, 1])
    assert float(compute_loss(v, {"a": one}, {"a": 0.3})) == pytest.approx(expected, abs=1e-6)
    expected += float(compute_loss(v, {"b": other}, {"b": 1.0}))
    both = compute_loss(v, {"a": one, "b": other}, {"a": 0.3, "b": 1.0})
    assert float(both) == pytest.approx(expected, abs=1e-6)
