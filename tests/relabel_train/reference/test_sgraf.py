"""Contract: SGR and SAF score pairs by the paper's formulas, whatever else is in the batch, in blocks of any size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from relabel_train.reference.models import sgraf as module
from relabel_train.reference.models.base import Vocabulary
from relabel_train.reference.models.sgraf import SGR, SimilarityModel
from relabel_train.reference.runs import make_model

TEXTS = ["a dog on a surfboard", "two cats", "a man", "a dog and a cat on a bench near the sea"]
FEATURES = torch.rand(3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
REGIONS = torch.tensor([4, 2, 3])


@pytest.fixture(autouse=True)
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model keep float64, so that it can be compared with loops to 1e-9."""
    monkeypatch.setattr(Tensor, "float", lambda self: self)


def make(name: str, embed_dim: int = 8) -> Any:
    torch.manual_seed(0)
    choice = {"name": name, "embed_dim": embed_dim, "word_dim": 5}
    return make_model(choice, 6, Vocabulary.of(TEXTS, 1)).double()


@pytest.fixture(params=["sgr", "saf"])
def model(request: Any) -> SimilarityModel:
    """Make a small model whose biases and running statistics are not 0 and 1, so that a missing one shows."""
    made = make(request.param).eval()
    for parameter in made.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    for name, buffer in made.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.fill_(0.2 if name.endswith("mean") else 0.7)
    assert isinstance(made, SimilarityModel)
    return made


def encode(model: SimilarityModel) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return model.encode_images(FEATURES, REGIONS), model.encode_captions(*model.tokens(TEXTS))


def unit(v: Tensor) -> Tensor:
    return v / (v.norm() + 1e-8)


def weighted(weights: Iterable[Tensor], vectors: list[Tensor]) -> Tensor:
    total = torch.zeros_like(vectors[0])
    for weight, vector in zip(weights, vectors, strict=True):
        total = total + weight * vector
    return total


def global_vector(part: Any, vectors: list[Tensor]) -> Tensor:
    mean = weighted(torch.full((len(vectors),), 1 / len(vectors)).double(), vectors)
    whole = part.mean_norm(part.mean(mean)[None])[0].tanh()
    logits = [part.weight(part.local_norm(part.local(v)[None])[0].tanh() * whole) for v in vectors]
    return unit(weighted(torch.cat(logits).softmax(dim=0), vectors))


def alignment(model: Any, regions: list[Tensor], words: list[Tensor]) -> list[Tensor]:
    """Return the similarity vectors of one pair: the global one, then one per word."""
    image, caption = global_vector(model.image_global, regions), global_vector(model.text_global, words)
    nodes = [unit(model.global_similarity((image - caption) ** 2))]
    rows = [torch.stack([torch.maximum(r @ w, 0.1 * (r @ w)) for w in words]) for r in regions]
    rows = [row / (row.norm() + 1e-8) for row in rows]
    for t, word in enumerate(words):
        context = unit(weighted(torch.stack([9 * row[t] for row in rows]).softmax(dim=0), regions))
        nodes.append(unit(model.local_similarity((context - word) ** 2)))
    return nodes


def reasoned(model: Any, nodes: list[Tensor]) -> Tensor:
    for step in model.steps:
        edges = [torch.stack([step.query(n) @ step.key(other) for other in nodes]).softmax(dim=0) for n in nodes]
        nodes = [step.out(weighted(row, nodes)).relu() for row in edges]
    return nodes[0]


def filtered(model: Any, nodes: list[Tensor]) -> Tensor:
    gates = [model.norm(model.gate(n)[None])[0, 0].sigmoid() for n in nodes]
    return unit(weighted([g / (sum(gates) + 1e-8) for g in gates], nodes))


@torch.no_grad()
def test_scores_equal_loops(model: Any) -> None:
    """Check every pair by itself, so that it depends neither on the batch nor on its padding."""
    images, captions = encode(model)
    scores, (tokens, lengths) = model.scores(images, captions), model.tokens(TEXTS)
    for j, length in enumerate(lengths.tolist()):
        states = model.gru(model.words(tokens[j : j + 1, :length]))[0][0]
        words = [unit((state[:8] + state[8:]) / 2) for state in states]
        for i, count in enumerate(REGIONS.tolist()):
            nodes = alignment(model, [unit(model.fc(v)) for v in FEATURES[i, :count]], words)
            vector = reasoned(model, nodes) if isinstance(model, SGR) else filtered(model, nodes)
            assert float(scores[i, j]) == pytest.approx(model.score(vector).sigmoid().item(), rel=1e-9)


@pytest.mark.parametrize("training", [False, True])
def test_blocks_change_nothing(model: SimilarityModel, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    images, captions = encode(model)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    results = []
    for cells in (1, 1 << 30):
        monkeypatch.setattr(module, "_CELLS", cells)
        model.load_state_dict(start)
        model.train(training)
        model.zero_grad()
        scores = model.scores(images, captions)
        scores.square().sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        running = {name: buffer.clone() for name, buffer in model.named_buffers()}
        results.append((scores.detach(), gradients, running))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)


def test_an_image_of_zeros_has_scores_and_gradients(model: SimilarityModel) -> None:
    """Check that an image without a feature, whose regions are zero while biases are, does not make NaN."""
    torch.nn.init.zeros_(model.fc.bias)
    features = FEATURES.clone()
    features[1] = 0
    scores = model.scores(model.encode_images(features, REGIONS), model.encode_captions(*model.tokens(TEXTS)))
    scores.sum().backward()
    assert scores.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_step_keeps_no_tensor_of_pairs_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that tensors kept for the gradient are no larger than the encodings: blocks are computed again."""
    monkeypatch.setattr(module, "_CELLS", 1 << 10)
    images, captions = (torch.rand(8, n, 16, dtype=torch.float64, requires_grad=True) for n in (5, 7))
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        make("sgr", 16).scores(images, captions)
    assert 0 < max(kept) <= captions.numel()
