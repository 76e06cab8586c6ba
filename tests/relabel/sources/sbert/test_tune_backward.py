"""Contract: gradients equal those of the plain computation for any division into pieces, bit for bit on any number of
threads. Frozen layers run once and change nothing. Dropout follows its seed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.relabel.sources.sbert.tiny_encoder import texts, tiny_encoder

from relabel.core.runtime import Runtime
from relabel.sources.sbert.tune_backward import GradientModel, divide_by_length

TEXTS = texts(300)
WHICH = np.arange(0, 300, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("tiny"))


def make(folder: Path, threads: int = 1, **options: object) -> GradientModel:
    return GradientModel(folder, TEXTS, Runtime(threads=threads, device="cpu"), torch.float32, **options)  # type: ignore[arg-type]


def loss(vectors: torch.Tensor) -> torch.Tensor:
    return (vectors @ vectors.T).square().mean()


def test_the_plain_gradient(folder: Path) -> None:
    model = make(folder, embeddings=True)
    value, computed = model.gradients(WHICH, loss, [0])
    encoder = model.model
    features = encoder.tokenize([TEXTS[i] for i in WHICH])
    plain = torch.nn.functional.normalize(encoder(features)["sentence_embedding"], dim=-1)
    expected = loss(plain)
    assert value == pytest.approx(float(expected.detach()), rel=1e-5)
    gradients = torch.autograd.grad(expected, list(model.parameters.values()))
    assert any("word_embeddings" in name for name in computed)
    for name, gradient in zip(model.parameters, gradients, strict=True):
        torch.testing.assert_close(computed[name], gradient, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(model.vectors(WHICH), plain.detach().numpy(), atol=1e-6)
    model.close()


def test_the_same_bits_on_any_number_of_threads(folder: Path) -> None:
    gradients = [make(folder, threads, dropout=0.2).gradients(WHICH, loss, [1, 2]) for threads in (1, 3)]
    assert gradients[0][0] == gradients[1][0]
    assert all(torch.equal(gradients[0][1][name], gradients[1][1][name]) for name in gradients[0][1])


def test_dropout_follows_its_seed(folder: Path) -> None:
    model = make(folder, dropout=0.2)
    first, again, other = (model.gradients(WHICH, loss, seed)[0] for seed in ([1, 2], [1, 2], [1, 3]))
    assert first == again != other
    assert first != make(folder).gradients(WHICH, loss, [1, 2])[0]


def test_frozen_layers(folder: Path) -> None:
    """Check that split and complete models have equal vectors and gradients, and that the model is restored."""
    complete, cut = make(folder), make(folder, layers=1)
    assert cut.hidden is not None
    assert cut.parameters
    assert all(".layer.2." in name for name in cut.parameters)
    np.testing.assert_allclose(cut.vectors(WHICH), complete.vectors(WHICH), atol=1e-6)
    (value, gradients), (other, expected) = (model.gradients(WHICH, loss, [0]) for model in (cut, complete))
    assert value == pytest.approx(other, rel=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-7)
    shared = make(folder, layers=1, hidden=cut.hidden)
    np.testing.assert_array_equal(shared.vectors(WHICH), cut.vectors(WHICH))
    cut.close()
    again = cut.model.encode(TEXTS[:9], normalize_embeddings=True)
    np.testing.assert_allclose(again, complete.vectors(np.arange(9)), atol=1e-6)


def test_pieces_hold_every_text_once_and_few_tokens() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 500).tolist()
    pieces = divide_by_length([*lengths, 5000])
    assert sorted(np.concatenate(pieces).tolist()) == list(range(501))
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * max([*lengths, 5000][i] for i in piece) <= 1024
