"""Contract: SGR and SAF score pairs by the paper's formulas, whatever else is in the batch, in blocks of any size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from relabel_train.reference.models import SGR, Vocabulary, make_model
from relabel_train.reference.models import sgraf as module
from relabel_train.reference.models.sgraf import SimilarityModel

TEXTS = ["a dog on a surfboard", "two cats", "a man", "a dog and a cat on a bench near the sea"]
REGIONS = torch.tensor([4, 2, 3])
Vector = list[float]


@pytest.fixture(autouse=True)
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model keep float64, so that it can be compared with loops to 1e-9."""
    monkeypatch.setattr(Tensor, "float", lambda self: self)


@pytest.fixture(params=["sgr", "saf"])
def model(request: Any) -> SimilarityModel:
    """Make a small model whose biases and running statistics are not 0 and 1, so that a missing one shows."""
    torch.manual_seed(0)
    made: Any = make_model(request.param, 6, Vocabulary.of(TEXTS, 1), embed_dim=8, word_dim=5).double().eval()
    for parameter in made.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    for name, buffer in made.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.fill_(0.2 if name.endswith("mean") else 0.7)
    assert isinstance(made, SimilarityModel)
    return made


@pytest.fixture
def features() -> Tensor:
    return torch.rand(3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def encode(model: SimilarityModel, features: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return model.encode_images(features, REGIONS), model.encode_captions(*model.tokens(TEXTS))


def unit(v: Vector) -> Vector:
    norm = math.sqrt(sum(x * x for x in v)) + 1e-8
    return [x / norm for x in v]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def layer(linear: Any, v: Vector) -> Vector:
    rows = linear.weight.tolist()
    bias = [0.0] * len(rows) if linear.bias is None else linear.bias.tolist()
    return [dot(row, v) + b for row, b in zip(rows, bias, strict=True)]


def softmax(values: Vector) -> Vector:
    exps = [math.exp(v - max(values)) for v in values]
    return [e / sum(exps) for e in exps]


def mean_of(weights: Vector, vectors: list[Vector]) -> Vector:
    return [sum(w * v[d] for w, v in zip(weights, vectors, strict=True)) for d in range(len(vectors[0]))]


def squares(a: Vector, b: Vector) -> Vector:
    return [(x - y) ** 2 for x, y in zip(a, b, strict=True)]


def normed(norm: Any, v: Vector) -> Vector:
    """Apply batch normalisation with its running statistics."""
    if not isinstance(norm, torch.nn.BatchNorm1d):
        return v
    facts = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    means, variances, weights, biases = (t.tolist() for t in facts if t is not None)
    return [(x - means[i]) / math.sqrt(variances[i] + norm.eps) * weights[i] + biases[i] for i, x in enumerate(v)]


def global_vector(part: Any, vectors: list[Vector]) -> Vector:
    mean = mean_of([1 / len(vectors)] * len(vectors), vectors)
    whole = [math.tanh(x) for x in normed(part.mean_norm, layer(part.mean, mean))]
    logits = []
    for v in vectors:
        local = [math.tanh(x) for x in normed(part.local_norm, layer(part.local, v))]
        logits.append(layer(part.weight, [a * b for a, b in zip(local, whole, strict=True)])[0])
    return unit(mean_of(softmax(logits), vectors))


def alignment(model: Any, regions: list[Vector], words: list[Vector], whole: tuple[Vector, Vector]) -> list[Vector]:
    """Return the similarity vectors of one pair: the global one, then one per word."""
    table = [[max(c, 0.1 * c) for c in (dot(r, w) for w in words)] for r in regions]
    table = [[c / (math.sqrt(sum(x * x for x in row)) + 1e-8) for c in row] for row in table]
    nodes = [unit(layer(model.global_similarity, squares(*whole)))]
    for t, word in enumerate(words):
        context = unit(mean_of(softmax([9 * row[t] for row in table]), regions))
        nodes.append(unit(layer(model.local_similarity, squares(context, word))))
    return nodes


def reasoned(model: Any, nodes: list[Vector]) -> Vector:
    for step in model.steps:
        keys = [layer(step.key, n) for n in nodes]
        edges = [softmax([dot(layer(step.query, n), key) for key in keys]) for n in nodes]
        nodes = [[max(x, 0) for x in layer(step.out, mean_of(row, nodes))] for row in edges]
    return nodes[0]


def filtered(model: Any, nodes: list[Vector]) -> Vector:
    gates = [1 / (1 + math.exp(-normed(model.norm, layer(model.gate, n))[0])) for n in nodes]
    return unit(mean_of([g / (sum(gates) + 1e-8) for g in gates], nodes))


def test_scores_equal_loops(model: SimilarityModel, features: Tensor) -> None:
    images, captions = encode(model, features)
    scores = model.scores(images, captions)
    for i, regions in enumerate(REGIONS.tolist()):
        local = [unit(layer(model.fc, v)) for v in features[i, :regions].tolist()]
        for j in range(len(TEXTS)):
            words = captions[j, 1 : 1 + int(model.tokens(TEXTS)[1][j])].tolist()
            whole = global_vector(model.image_global, local), global_vector(model.text_global, words)
            nodes = alignment(model, local, words, whole)
            vector = reasoned(model, nodes) if isinstance(model, SGR) else filtered(model, nodes)
            expected = 1 / (1 + math.exp(-layer(model.score, vector)[0]))
            assert float(scores[i, j]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("training", [False, True])
def test_blocks_change_nothing(
    model: SimilarityModel, features: Tensor, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, captions = encode(model, features)
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


def test_gradients(model: SimilarityModel, features: Tensor) -> None:
    images, captions = encode(model, features)
    # Padding is zero and stays zero: only vectors that count are varied.
    inputs = images[:1].clone().requires_grad_(), captions[3:].clone().requires_grad_()
    assert torch.autograd.gradcheck(model.scores, inputs, atol=1e-6)


def test_a_step_keeps_no_tensor_of_pairs_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that tensors kept for the gradient are no larger than the encodings: blocks are computed again."""
    monkeypatch.setattr(module, "_CELLS", 1 << 10)
    model: Any = make_model("sgr", 6, Vocabulary.of(TEXTS, 1), embed_dim=16, word_dim=5).double()
    images = torch.rand(8, 5, 16, dtype=torch.float64, requires_grad=True)
    captions = torch.rand(8, 7, 16, dtype=torch.float64, requires_grad=True)
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.scores(images, captions)
    assert max(kept, default=0) <= captions.numel()
