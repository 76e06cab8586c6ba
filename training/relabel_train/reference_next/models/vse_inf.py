"""VSE-infinity: generalized pooling of regions and of words, with a learned weight per rank of the values.

Chen et al., Learning the Best Pooling Strategy for Visual Semantic Embedding (VSE-infinity), CVPR 2021, section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relabel_train.reference_next.models.base import PAD, UNKNOWN, Model, Vocabulary, counted, run_gru, xavier

DROP = 0.2
"""Share of regions, and of words, that a training step drops, as the paper."""


class GPO(nn.Module):
    """sum over k of theta_k times the k-th largest value of each dimension; theta depends on the number of values.

    theta = softmax(MLP(BiGRU(position encodings of 1..n)) / temperature).

    `positions`, `hidden`: width of the encodings and of each direction of the GRU; 32. `temperature`: 0.1.
    """

    def __init__(self, positions: int = 32, hidden: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.positions, self.temperature = positions, temperature
        self.gru = nn.GRU(positions, hidden, batch_first=True, bidirectional=True)
        self.weight = nn.Linear(hidden, 1, bias=False)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Pool (B, N, D) values, of which the first `length` count, to (B, D) float32."""
        mask = counted(lengths, values.shape[1])
        theta = self.coefficients(lengths, values.shape[1])
        # Padding sorts behind all values, each dimension by itself, and is then cleared: 0 times -inf is NaN.
        ordered = values.float().masked_fill(~mask[:, :, None], -torch.inf).sort(dim=1, descending=True).values
        return (ordered.masked_fill(~mask[:, :, None], 0) * theta[:, :, None]).sum(dim=1)

    def coefficients(self, lengths: Tensor, most: int) -> Tensor:
        """Return theta, (B, most) float32: 0 beyond the length, sum 1."""
        # theta depends on the length alone, so the GRU runs once per distinct length.
        distinct, index = torch.unique(lengths, return_inverse=True)
        encoded = encodings(most, self.positions).to(lengths.device).expand(len(distinct), -1, -1)
        states, _ = run_gru(self.gru, encoded, distinct)
        logits = self.weight(states)[:, :, 0].float() / self.temperature
        theta: Tensor = logits.masked_fill(~counted(distinct, most), -torch.inf).softmax(dim=1)
        return theta[index]


def encodings(count: int, width: int) -> Tensor:
    """Return sines (even columns) and cosines (odd) of positions 0..count - 1: (count, width); Vaswani et al., 2017."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).reshape(count, -1)[:, :width]


class VSEInfinity(Model):
    """Regions: a linear layer plus a two-layer MLP, pooled. Captions: states of a BiGRU or of a transformer, pooled.

    `width`: D of an image's vectors. `vocabulary`: of the BiGRU. `embed_dim`, `word_dim`: E, and the width of word
    vectors; 1024 and 300. `text`: "gru", or a transformers model by name or folder (`bert-base-uncased`, as the paper):
    its states, then a linear layer.

    A training step drops a share `DROP` of regions and of words. Half of the dropped words become unknown (a
    transformer's mask), a tenth another word, the rest are removed.
    """

    def __init__(
        self,
        width: int,
        vocabulary: Vocabulary,
        embed_dim: int = 1024,
        word_dim: int = 300,
        text: str = "gru",
    ) -> None:
        super().__init__(vocabulary)
        self.fc = nn.Linear(width, embed_dim)
        half = max(1, embed_dim // 2)
        layers = nn.Linear(width, half), nn.BatchNorm1d(half), nn.ReLU(inplace=True), nn.Linear(half, embed_dim)
        self.mlp = nn.Sequential(*layers)
        xavier(self.fc)
        self.image_pool, self.text_pool = GPO(), GPO()
        self.text = _Words(vocabulary, embed_dim, word_dim) if text == "gru" else _Transformer(text, embed_dim)

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return (B, T) int64 tokens and the (B,) int64 numbers of tokens that count."""
        return self.text.tokens(texts)

    def encode_images(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Embed B images, (B, R, D), as (B, E) float32."""
        mask = counted(lengths, features.shape[1])
        if self.training:
            features, mask = _dropped(features, mask, torch.rand(mask.shape, device=mask.device) < DROP)
        # Without padding, which would enter the statistics of the batch norm.
        flat = features[mask]
        regions = self.fc(flat) + self.mlp(flat)
        out = regions.new_zeros(*mask.shape, regions.shape[1])
        out[mask] = regions
        return self.finish(self.image_pool(out, mask.sum(dim=1)))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Embed B captions, prepared by `tokens`, as (B, E) float32."""
        if self.training:
            tokens, lengths = self._words_dropped(tokens, lengths)
        return self.finish(self.text_pool(self.text(tokens, lengths), lengths))

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the parameter groups; a transformer learns at a tenth of the rate."""
        if not isinstance(self.text, _Transformer):
            return super().parameter_groups(lr)
        slow = {id(p) for p in self.text.model.parameters()}
        fast = [p for p in self.parameters() if id(p) not in slow]
        return [{"params": fast, "lr": lr}, {"params": list(self.text.model.parameters()), "lr": lr * 0.1}]

    def _words_dropped(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Drop words of a training step: half are masked, a tenth replaced, the rest removed."""
        mask = counted(lengths, tokens.shape[1])
        position = torch.arange(tokens.shape[1], device=tokens.device)
        # Start and end stay.
        inner = (position > 0) & (position < lengths[:, None] - 1)
        chance, fate = torch.rand(2, *tokens.shape, device=tokens.device)
        hit = inner & (chance < DROP)
        # A vocabulary without words still needs a valid range to draw from.
        bounds = self.text.first, max(self.text.size, self.text.first + 1)
        replacement = torch.randint(*bounds, tokens.shape, device=tokens.device)
        tokens = torch.where(hit & (fate < 0.5), self.text.mask, tokens)
        tokens = torch.where(hit & (fate >= 0.5) & (fate < 0.6), replacement.clamp(max=self.text.size - 1), tokens)
        tokens, mask = _dropped(tokens, mask, hit & (fate >= 0.6))
        return tokens.masked_fill(~mask, PAD), mask.sum(dim=1)


class _Words(nn.Module):
    """States of a bidirectional GRU: (B, T, E). Tokens of words are first..size - 1, `mask` hides one."""

    mask, first = UNKNOWN, 4  # the vocabulary has no mask; 0 to 3 are not words

    def __init__(self, vocabulary: Vocabulary, embed_dim: int, word_dim: int) -> None:
        super().__init__()
        self.vocabulary, self.size = vocabulary, len(vocabulary)
        self.words = nn.Embedding(len(vocabulary), word_dim)
        self.gru = nn.GRU(word_dim, embed_dim, batch_first=True, bidirectional=True)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        return self.vocabulary(texts)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return run_gru(self.gru, self.words(tokens), lengths)[0]


class _Transformer(nn.Module):
    """Last states of a transformers model, through a linear layer; attributes as those of `_Words`."""

    def __init__(self, name: str, embed_dim: int) -> None:
        super().__init__()
        from transformers import AutoModel, AutoTokenizer

        # A model is data: code in its folder never runs, and nothing is unpickled.
        self.tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model: Any = AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
        # Checkpoints are loaded in the dtype that they are stored in; weights are trained in float32.
        self.model = model.float()
        # The pooler of BERT and RoBERTa takes no part in the states.
        if getattr(self.model, "pooler", None) is not None:
            self.model.pooler = None
        self.fc = nn.Linear(self.model.config.hidden_size, embed_dim)
        self.size = len(self.tokenizer)
        self.mask = self.tokenizer.mask_token_id if self.tokenizer.mask_token_id is not None else 0
        self.first = 0

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        encoded = self.tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        return encoded["input_ids"], encoded["attention_mask"].sum(dim=1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        mask = counted(lengths, tokens.shape[1]).long()
        states = self.model(input_ids=tokens, attention_mask=mask).last_hidden_state
        return torch.as_tensor(self.fc(states))


def _dropped(values: Tensor, mask: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Remove positions of (B, N, ...) values; the others, at least one per row, move to the front in order.

    `mask`: positions that count. `out`: positions to remove. Returns the values and their mask.
    """
    stays = mask & ~out
    # An image or caption never loses everything: its first position stays.
    empty = ~stays.any(dim=1)
    stays[empty, 0] = True
    # A stable sort of the marks moves the remaining positions to the front, in order.
    order = (~stays).to(torch.int8).sort(dim=1, stable=True).indices
    moved = values.gather(1, order.reshape(*order.shape, *(1,) * (values.ndim - 2)).expand_as(values))
    return moved, counted(stays.sum(dim=1), mask.shape[1])
