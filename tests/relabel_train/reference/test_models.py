"""Contract: models return unit vectors by the papers' formulas, independent of the rest of the batch. GPO equals its
formula, and words are numbered by frequency.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from relabel_train.reference.models import vse_inf as module
from relabel_train.reference.models.base import Vocabulary, words
from relabel_train.reference.models.vse_inf import GPO, HIDDEN, POSITIONS
from relabel_train.reference.runs import make_model

TEXTS = ["A man's dog.", "two dogs, running!", "", "a a a a a a a a a a a dog"]
VOCABULARY = Vocabulary.of(["a dog", "a man", "two dogs", "a dog running"], min_count=1)
FEATURES, REGIONS = torch.randn(4, 7, 6, generator=torch.Generator().manual_seed(3)), torch.tensor([7, 1, 3, 5])


def make(name: str) -> Any:
    torch.manual_seed(0)
    return make_model({"name": name, "embed_dim": 8, "word_dim": 5}, 6, VOCABULARY)


def encode(model: Any, features: Any = FEATURES) -> tuple[Any, Any]:
    return model.encode_images(features, REGIONS), model.encode_captions(*model.tokens(TEXTS))


def test_words_are_numbered_by_frequency() -> None:
    assert words("A man's dog, 2 cats-- ÉTÉ_x...") == ["a", "man's", "dog", "2", "cats", "été", "x"]
    made = Vocabulary.of(["b b a", "a c", "b"], min_count=2)
    for vocabulary in (made, Vocabulary(made.words)):
        assert (vocabulary.words, len(vocabulary)) == (("b", "a"), 6)
        tokens, lengths = vocabulary(["a c b", ""])
        assert (tokens.tolist(), lengths.tolist()) == ([[2, 5, 1, 4, 3], [2, 3, 0, 0, 0]], [5, 2])


@pytest.mark.parametrize("name", ["vsepp", "vse_inf"])
def test_unit_vectors_that_do_not_depend_on_the_batch_or_on_padding(name: str) -> None:
    model, features = make(name).eval(), FEATURES.clone()
    images, captions = encode(model)
    assert images.shape == captions.shape == (4, 8)
    torch.testing.assert_close(torch.cat([images, captions]).norm(dim=1), torch.ones(8))
    torch.testing.assert_close(model.scores(images, captions), images @ captions.T)
    for i, count in enumerate(REGIONS.tolist()):
        alone = model.encode_images(features[i : i + 1, :count], REGIONS[i : i + 1])
        torch.testing.assert_close(alone[0], images[i])
        torch.testing.assert_close(model.encode_captions(*model.tokens([TEXTS[i]]))[0], captions[i])
    features[1, 1:] = 1e6  # padding
    torch.testing.assert_close(model.encode_images(features, REGIONS), images)
    model.normalize = False
    raw = encode(model)
    assert not any(torch.allclose(one.norm(dim=1), torch.ones(4)) for one in raw)
    for one, unit_vectors in zip(raw, (images, captions), strict=True):
        torch.testing.assert_close(normalize(one, dim=1), unit_vectors)
    torch.testing.assert_close(model.scores(*raw), images @ captions.T)


def test_vsepp_is_linear_max_and_the_last_state() -> None:
    model = make("vsepp")
    best = torch.stack([model.fc(vector) for vector in FEATURES[0]]).amax(dim=0)
    torch.testing.assert_close(model.encode_images(FEATURES[:1], REGIONS[:1])[0], normalize(best, dim=0))
    tokens, lengths = model.tokens(["a dog"])
    _, last = model.gru(model.words.weight[tokens])
    torch.testing.assert_close(model.encode_captions(tokens, lengths), normalize(last[0], dim=1))


def test_gpo_is_a_weighted_sum_of_sorted_values() -> None:
    """Check its weights, of a GRU over sines and cosines of positions."""
    torch.manual_seed(2)
    pool = GPO()
    values, lengths = torch.randn(3, 5, 2), torch.tensor([5, 2, 1])
    pooled = pool(values, lengths).tolist()
    for b, n in enumerate(lengths.tolist()):
        angles = [[p / 10000 ** (2 * i / POSITIONS) for i in range(POSITIONS // 2)] for p in range(n)]
        encoded = [[wave(angle) for angle in row for wave in (math.sin, math.cos)] for row in angles]
        states = pool.gru(torch.tensor([encoded]))[0][0]
        logits = [pool.weight((s[:HIDDEN] + s[HIDDEN:]) / 2).item() / 0.1 for s in states]
        total = sum(math.exp(x) for x in logits)
        for d in range(2):
            ordered = sorted(values[b, :n, d].tolist(), reverse=True)
            expected = sum(math.exp(x) / total * v for x, v in zip(logits, ordered, strict=True))
            assert pooled[b][d] == pytest.approx(expected, abs=1e-5)


def test_vse_infinity_drops_in_training_only_and_ignores_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("vse_inf")
    texts = model.tokens(TEXTS)
    for training in (False, True):
        model.train(training)
        assert torch.equal(model.encode_captions(*texts), model.encode_captions(*texts)) != training
    norm = model.mlp[1]
    norm.momentum = 1.0
    monkeypatch.setattr(module, "DROP", 0.0)
    model.encode_images(FEATURES, REGIONS)
    flat = torch.cat([FEATURES[i, :n] for i, n in enumerate(REGIONS.tolist())])
    torch.testing.assert_close(norm.running_mean, model.mlp[0](flat).mean(dim=0).detach())


@pytest.mark.parametrize("name", ["vsepp", "vse_inf"])
def test_grus_compute_in_float32_under_autocast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check inputs and autocast of every GRU: cuDNN would compute in float16, and bfloat16 has no loss scale."""
    seen: set[tuple[torch.dtype, bool]] = set()
    forward = torch.nn.GRU.forward

    def record(self: torch.nn.GRU, values: Any) -> Any:
        seen.add((values.data.dtype, torch.is_autocast_enabled("cpu")))
        return forward(self, values)

    monkeypatch.setattr(torch.nn.GRU, "forward", record)
    model = make(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encode(model)
    assert seen == {(torch.float32, False)}
