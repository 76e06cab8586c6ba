"""VSE-infinity: generalized pooling of regions and of words, with a learned weight per rank of the values.

Chen et al., Learning the Best Pooling Strategy for Visual Semantic Embedding (VSE-infinity), CVPR 2021, section 3.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relabel_train.reference.models.base import FIRST, PAD, UNKNOWN, Model, Vocabulary, counted, run_gru, xavier

DROP = 0.2
"""Share of regions, and of words, that a training step drops, as in the paper."""
POSITIONS, HIDDEN, TEMPERATURE = 32, 32, 0.1
"""Of GPO, as in the paper: widths of position encodings and of its GRU, and of the softmax."""


class GPO(nn.Module):
    """sum over k of theta_k times the k-th largest value of each dimension; theta depends on the number of values.

    theta = softmax(MLP(BiGRU(position encodings of 1..n)) / temperature).
    """

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(POSITIONS, HIDDEN, batch_first=True, bidirectional=True)
        self.weight = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Pool (B, N, D) values, of which the first `length` count, to (B, D) float32."""
        mask = counted(lengths, values.shape[1])
        theta = self.coefficients(lengths, values.shape[1])
        # Padding sorts behind all values, each dimension by itself, and is then cleared: 0 times -inf is NaN.
        ordered = values.float().masked_fill(~mask[:, :, None], -torch.inf).sort(dim=1, descending=True).values
        return (ordered.masked_fill(~mask[:, :, None], 0) * theta[:, :, None]).sum(dim=1)

    def coefficients(self, lengths: Tensor, most: int) -> Tensor:
        """Return theta, (B, most) float32: 0 beyond the length, sum 1."""
        # theta depends on the length only, so the GRU runs once per distinct length.
        distinct, index = torch.unique(lengths, return_inverse=True)
        encoded = encodings(most, POSITIONS).to(lengths.device).expand(len(distinct), -1, -1)
        states, _ = run_gru(self.gru, encoded, distinct)
        logits = self.weight(states)[:, :, 0].float() / TEMPERATURE
        theta: Tensor = logits.masked_fill(~counted(distinct, most), -torch.inf).softmax(dim=1)
        return theta[index]


def encodings(count: int, width: int) -> Tensor:
    """Return sines (even columns) and cosines (odd) of positions 0..count - 1: (count, width); Vaswani et al., 2017."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).reshape(count, -1)


class VSEInfinity(Model):
    """Regions: a linear layer plus a two-layer MLP, pooled. Captions: states of a BiGRU, pooled.

    `width`: D of an image's vectors. `embed_dim`, `word_dim`: E, and the width of word vectors; 1024 and 300.

    A training step drops a share `DROP` of regions and of words. Half of the dropped words become unknown, a tenth
    another word, the rest are removed.
    """

    def __init__(self, width: int, vocabulary: Vocabulary, embed_dim: int = 1024, word_dim: int = 300) -> None:
        super().__init__(vocabulary)
        self.fc = nn.Linear(width, embed_dim)
        half = max(1, embed_dim // 2)
        layers = nn.Linear(width, half), nn.BatchNorm1d(half), nn.ReLU(inplace=True), nn.Linear(half, embed_dim)
        self.mlp = nn.Sequential(*layers)
        xavier(self.fc)
        self.image_pool, self.text_pool = GPO(), GPO()
        self.words = nn.Embedding(len(vocabulary), word_dim)
        self.gru = nn.GRU(word_dim, embed_dim, batch_first=True, bidirectional=True)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def encode_images(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Embed B images, (B, R, D), as (B, E) float32."""
        mask = counted(lengths, features.shape[1])
        if self.training:
            features, mask = _removed(features, mask, torch.rand(mask.shape, device=mask.device) < DROP)
        # Without padding, because it would enter the statistics of the batch norm.
        flat = features[mask]
        regions = self.fc(flat) + self.mlp(flat)
        out = regions.new_zeros(*mask.shape, regions.shape[1])
        out[mask] = regions
        return self.finish(self.image_pool(out, mask.sum(dim=1)))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Embed B captions, prepared by `tokens`, as (B, E) float32."""
        if self.training:
            tokens, lengths = self._words_dropped(tokens, lengths)
        states, _ = run_gru(self.gru, self.words(tokens), lengths)
        return self.finish(self.text_pool(states, lengths))

    def _words_dropped(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Drop words of a training step: half become unknown, a tenth another word, the rest are removed."""
        mask = counted(lengths, tokens.shape[1])
        position = torch.arange(tokens.shape[1], device=tokens.device)
        # Start and end stay.
        inner = (position > 0) & (position < lengths[:, None] - 1)
        chance, fate = torch.rand(2, *tokens.shape, device=tokens.device)
        hit = inner & (chance < DROP)
        # A vocabulary without words still needs a valid range to draw from.
        size = len(self.vocabulary)
        others = torch.randint(FIRST, max(size, FIRST + 1), tokens.shape, device=tokens.device).clamp(max=size - 1)
        tokens = torch.where(hit & (fate < 0.5), UNKNOWN, tokens)
        tokens = torch.where(hit & (fate >= 0.5) & (fate < 0.6), others, tokens)
        tokens, mask = _removed(tokens, mask, hit & (fate >= 0.6))
        return tokens.masked_fill(~mask, PAD), mask.sum(dim=1)


def _removed(values: Tensor, mask: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Remove positions of (B, N, ...) values; the others, at least one per row, move to the front in order.

    `mask`: positions that count. `out`: positions to remove. Returns the values and their mask.
    """
    stays = mask & ~out
    # An image or caption never loses everything: its first position stays.
    stays[~stays.any(dim=1), 0] = True
    # A stable sort of the marks moves the remaining positions to the front, in order.
    order = (~stays).to(torch.int8).sort(dim=1, stable=True).indices
    moved = values.gather(1, order.reshape(*order.shape, *(1,) * (values.ndim - 2)).expand_as(values))
    return moved, counted(stays.sum(dim=1), mask.shape[1])
