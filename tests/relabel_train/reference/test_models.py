"""Contract: models return unit vectors by the papers' formulas, independent of the rest of the batch. GPO equals its
formula, and words are numbered by frequency.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tests.relabel_train.reference.transformer_folder import write_transformer
from torch import Tensor

from relabel_train.reference.models import GPO, MODELS, Vocabulary, make_model
from relabel_train.reference.models.vse_inf import VSEInfinity, _dropped, encodings
from relabel_train.reference.models.vsepp import VSEPP

TEXTS = ["A man's dog.", "two dogs, running!", "", "a a a a a a a a a a a dog"]


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.of(["a dog", "a man", "two dogs", "a dog running"], min_count=1)


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if not model.sets])
def test_unit_vectors_that_do_not_depend_on_the_batch_or_on_padding(name: str, vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    model = make_model(name, 6, vocabulary, embed_dim=8, word_dim=5).eval()
    features, regions = torch.randn(4, 7, 6), torch.tensor([7, 1, 3, 5])
    tokens, lengths = model.tokens(TEXTS)
    images, captions = model(features, regions, tokens, lengths)
    assert images.shape == captions.shape == (4, 8)
    for embeddings in (images, captions):
        torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(model.scores(images, captions), images @ captions.T)
    for i in range(4):
        alone = model.encode_images(features[i : i + 1, : regions[i]], regions[i : i + 1])
        torch.testing.assert_close(alone[0], images[i])
        one = model.tokens([TEXTS[i]])
        torch.testing.assert_close(model.encode_captions(*one)[0], captions[i])
    features[1, 1:] = 1e6  # padding
    torch.testing.assert_close(model.encode_images(features, regions), images)


def test_vsepp_is_linear_max_and_the_last_state(vocabulary: Vocabulary) -> None:
    torch.manual_seed(1)
    model = VSEPP(6, vocabulary, embed_dim=4, word_dim=3)
    assert not model.fc.bias.any()
    assert float(model.words.weight.detach().abs().max()) <= 0.1
    bound = math.sqrt(6 / (6 + 4))
    assert float(model.fc.weight.detach().abs().max()) <= bound
    features = torch.randn(1, 2, 6)
    by_hand = torch.stack([model.fc.weight @ features[0, r] for r in range(2)]).amax(dim=0)
    encoded = model.encode_images(features, torch.tensor([2]))[0]
    torch.testing.assert_close(encoded, by_hand / by_hand.norm())
    tokens, lengths = model.tokens(["a dog"])
    state = torch.zeros(4)
    for token in tokens[0].tolist():
        state = gru_step(model, model.words.weight[token], state)
    torch.testing.assert_close(model.encode_captions(tokens, lengths)[0], state / state.norm())


def gru_step(model: VSEPP, x: Tensor, h: Tensor) -> Tensor:
    gru = model.gru
    left = gru.weight_ih_l0 @ x + gru.bias_ih_l0
    right = gru.weight_hh_l0 @ h + gru.bias_hh_l0
    (ir, iz, inn), (hr, hz, hn) = left.chunk(3), right.chunk(3)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(inn + r * hn) + z * h


def test_gpo_is_a_weighted_sum_of_sorted_values() -> None:
    torch.manual_seed(2)
    pool = GPO(positions=8, hidden=4)
    values, lengths = torch.randn(3, 5, 2), torch.tensor([5, 2, 1])
    pooled = pool(values, lengths)
    for b, n in enumerate(lengths.tolist()):
        states = pool.gru(encodings(n, 8)[None])[0][0]
        logits = [float(pool.weight((s[:4] + s[4:]) / 2).detach()) / 0.1 for s in states]
        total = sum(math.exp(x) for x in logits)
        for d in range(2):
            ordered = sorted(values[b, :n, d].tolist(), reverse=True)
            expected = sum(math.exp(x) / total * v for x, v in zip(logits, ordered, strict=True))
            assert float(pooled[b, d]) == pytest.approx(expected, abs=1e-5)
    assert not pool.coefficients(lengths, 5)[1, 2:].any()


def test_dropped_regions_keep_the_order_and_at_least_one() -> None:
    values = torch.arange(1, 9).reshape(2, 4)
    seen = torch.tensor([[True, True, True, False], [True, True, False, False]])
    out = torch.tensor([[True, False, False, False], [True, True, True, True]])
    moved, left = _dropped(values, seen, out)
    assert moved[0, :2].tolist() == [2, 3]
    assert left.sum(dim=1).tolist() == [2, 1]
    assert moved[1, 0] == 5


def test_vse_infinity_drops_in_training_only_and_ignores_padding(vocabulary: Vocabulary) -> None:
    torch.manual_seed(3)
    model = VSEInfinity(6, vocabulary, embed_dim=8, word_dim=5)
    features, regions = torch.randn(4, 7, 6), torch.tensor([7, 4, 3, 5])
    tokens, lengths = model.tokens(TEXTS)
    model.eval()
    torch.testing.assert_close(model.encode_images(features, regions), model.encode_images(features, regions))
    model.train()
    assert not torch.equal(model.encode_captions(tokens, lengths), model.encode_captions(tokens, lengths))
    model.region_drop = 0.0
    norm = model.mlp[1]
    assert isinstance(norm, torch.nn.BatchNorm1d)
    norm.momentum, norm.running_mean = 1.0, torch.zeros(4)
    model.encode_images(features, regions)
    flat = torch.cat([features[i, :n] for i, n in enumerate(regions.tolist())])
    torch.testing.assert_close(norm.running_mean, model.mlp[0](flat).mean(dim=0).detach())


def test_a_transformer_reads_captions_and_learns_slower(vocabulary: Vocabulary, tmp_path: Path) -> None:
    write_transformer(tmp_path)
    model = make_model("vse_inf", 6, vocabulary, embed_dim=8, word_dim=5, text=str(tmp_path)).eval()
    tokens, lengths = model.tokens(["a dog", "two"])
    encoded = model.encode_captions(tokens, lengths)
    torch.testing.assert_close(model.encode_captions(tokens[1:, :3], lengths[1:])[0], encoded[1])
    fast, slow = model.parameter_groups(1.0)
    assert (fast["lr"], slow["lr"]) == (1.0, 0.1)
    assert len(fast["params"]) + len(slow["params"]) == len(list(model.parameters()))


def test_a_transformer_with_code_or_pickles_is_refused(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('mark').touch()\n")
    (tmp_path / "config.json").write_text('{"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}')
    with pytest.raises(ValueError, match="custom code"):
        make_model("vse_inf", 6, vocabulary, embed_dim=8, word_dim=5, text=str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 6}')
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        make_model("vse_inf", 6, vocabulary, embed_dim=8, word_dim=5, text=str(tmp_path))
    assert not (tmp_path / "mark").exists()
