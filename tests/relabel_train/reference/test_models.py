"""Contract: models return unit vectors by the papers' formulas, independent of the rest of the batch. GPO equals its
formula, and words are numbered by frequency.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from relabel_train.reference.models import GPO, Vocabulary, make_model
from relabel_train.reference.models.base import words

TEXTS = ["A man's dog.", "two dogs, running!", "", "a a a a a a a a a a a dog"]
VOCABULARY = Vocabulary.of(["a dog", "a man", "two dogs", "a dog running"], min_count=1)
FEATURES, REGIONS = torch.randn(4, 7, 6, generator=torch.Generator().manual_seed(3)), torch.tensor([7, 1, 3, 5])


def make(name: str, text: str = "gru") -> Any:
    torch.manual_seed(0)
    return make_model(name, 6, VOCABULARY, embed_dim=8, word_dim=5, text=text)


def test_words_are_numbered_by_frequency_and_restored_from_their_file(tmp_path: Path) -> None:
    assert words("A man's dog, 2 cats-- ÉTÉ_x...") == ["a", "man's", "dog", "2", "cats", "été", "x"]
    made = Vocabulary.of(["b b a", "a c", "b"], min_count=2)
    path = tmp_path / "vocabulary.json"
    path.write_text(made.to_json(), encoding="utf-8")
    for vocabulary in (made, Vocabulary.read(path)):
        assert vocabulary.words == ("<pad>", "<unk>", "<start>", "<end>", "b", "a")
        tokens, lengths = vocabulary(["a c b", ""])
        assert (tokens.tolist(), lengths.tolist()) == ([[2, 5, 1, 4, 3], [2, 3, 0, 0, 0]], [5, 2])


@pytest.mark.parametrize("name", ["vsepp", "vse_inf"])
def test_unit_vectors_that_do_not_depend_on_the_batch_or_on_padding(name: str) -> None:
    model, features = make(name).eval(), FEATURES.clone()
    images, captions = model(features, REGIONS, *model.tokens(TEXTS))
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
    raw = model(FEATURES, REGIONS, *model.tokens(TEXTS))
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
    pool = GPO(positions=8, hidden=4)
    values, lengths = torch.randn(3, 5, 2), torch.tensor([5, 2, 1])
    pooled = pool(values, lengths).tolist()
    for b, n in enumerate(lengths.tolist()):
        angles = [[p / 10000 ** (2 * i / 8) for i in range(4)] for p in range(n)]
        encoded = [[wave(angle) for angle in row for wave in (math.sin, math.cos)] for row in angles]
        states = pool.gru(torch.tensor([encoded]))[0][0]
        logits = [pool.weight((s[:4] + s[4:]) / 2).item() / 0.1 for s in states]
        total = sum(math.exp(x) for x in logits)
        for d in range(2):
            ordered = sorted(values[b, :n, d].tolist(), reverse=True)
            expected = sum(math.exp(x) / total * v for x, v in zip(logits, ordered, strict=True))
            assert pooled[b][d] == pytest.approx(expected, abs=1e-5)


def test_vse_infinity_drops_in_training_only_and_ignores_padding() -> None:
    model = make("vse_inf")
    texts = model.tokens(TEXTS)
    for training in (False, True):
        model.train(training)
        assert torch.equal(model.encode_captions(*texts), model.encode_captions(*texts)) != training
    model.region_drop, norm = 0.0, model.mlp[1]
    norm.momentum = 1.0
    model.encode_images(FEATURES, REGIONS)
    flat = torch.cat([FEATURES[i, :n] for i, n in enumerate(REGIONS.tolist())])
    torch.testing.assert_close(norm.running_mean, model.mlp[0](flat).mean(dim=0).detach())


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_a_transformer_reads_captions_in_float32_and_learns_slower(kind: str, transformer: Any) -> None:
    """Check a checkpoint in bfloat16, which transformers loads as it is stored."""
    model = make("vse_inf", transformer(kind, dtype=torch.bfloat16)).eval()
    tokens, lengths = model.tokens(["a dog", "two"])
    encoded = model.encode_captions(tokens, lengths)
    torch.testing.assert_close(model.encode_captions(tokens[1:, :3], lengths[1:])[0], encoded[1])
    fast, slow = model.parameter_groups(1.0)
    assert (fast["lr"], slow["lr"]) == (1.0, 0.1)
    assert len(fast["params"]) + len(slow["params"]) == len(list(model.parameters()))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    encoded.sum().backward()
    # DistributedDataParallel refuses a parameter without a gradient, as the pooler's are.
    assert [n for n, p in model.text.named_parameters() if p.grad is None] == []


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
        model(FEATURES, REGIONS, *model.tokens(TEXTS))
    assert seen == {(torch.float32, False)}


def test_a_transformer_with_code_or_pickles_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('mark').touch()\n")
    (tmp_path / "config.json").write_text('{"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}')
    with pytest.raises(ValueError, match="custom code"):
        make("vse_inf", str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 6}')
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        make("vse_inf", str(tmp_path))
    assert not (tmp_path / "mark").exists()
