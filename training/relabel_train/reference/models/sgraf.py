"""SGR and SAF: scores from the alignment of every word with the regions of an image.

Diao et al., Similarity Reasoning and Filtration for Image-Text Matching (SGRAF), AAAI 2021. SGRAF is the average of the
scores of both models. They are trained separately: `relabel eval --run SGR --average SAF`.

An item is encoded as a set: its global vector, then its local vectors, all of length 1, then padding of zeros.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, linear, pad
from torch.utils.checkpoint import checkpoint

from relabel_train.reference.models.base import Model, Vocabulary, counted, run_gru, unit, xavier

_CELLS = 1 << 23
"""Maximum elements of any tensor of a block of captions: 32 MiB of float32."""
_DROP = 0.4
"""Dropout of word vectors and of the attention to global vectors, as the released code."""


class SimilarityModel(Model):
    """Base of SGR and SAF: encoders of regions and words, and the similarity vectors of their alignment.

    `width`: D of an image's vectors. `embed_dim`, `word_dim`: E, and the width of word vectors; 1024 and 300 in the
    paper. Similarity vectors have a quarter of E, 256 in the paper.

    Scores are in (0, 1). They are computed for blocks of captions, and a training step recomputes each block for the
    gradient. In addition to the encodings and the scores, memory is that of one block, a few times 32 MiB or of one
    caption.
    """

    sets: ClassVar[bool] = True

    def __init__(self, width: int, vocabulary: Vocabulary, embed_dim: int = 1024, word_dim: int = 300) -> None:
        super().__init__(vocabulary)
        self.fc = nn.Linear(width, embed_dim)
        self.words = nn.Embedding(len(vocabulary), word_dim)
        self.gru = nn.GRU(word_dim, embed_dim, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(_DROP)
        self.image_global, self.text_global = _GlobalVector(embed_dim, norm=True), _GlobalVector(embed_dim)
        self.similarity = max(1, embed_dim // 4)
        self.local_similarity = nn.Linear(embed_dim, self.similarity)
        self.global_similarity = nn.Linear(embed_dim, self.similarity)
        self.score = nn.Linear(self.similarity, 1)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)
        xavier(self.fc, self.local_similarity, self.global_similarity, self.score)

    def encode_images(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Encode B images, (B, R, D), as (B, 1 + R, E) float32: the global vector, the regions, zeros as padding."""
        mask = counted(lengths, features.shape[1])
        encoded: Tensor = self.image_global(unit(self.fc(features)).masked_fill(~mask[:, :, None], 0), mask)
        return encoded

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Encode B captions, (B, T), as (B, 1 + T, E) float32: the global vector, the words, zeros as padding."""
        mask = counted(lengths, tokens.shape[1])
        states, _ = run_gru(self.gru, self.drop(self.words(tokens)), lengths)
        encoded: Tensor = self.text_global(unit(states).masked_fill(~mask[:, :, None], 0), mask)
        return encoded

    def scores(self, images: Tensor, captions: Tensor) -> Tensor:
        """Return the scores s(V_i, T_j) of encodings: (B_images, B_captions), in (0, 1)."""
        # Captions of equal length need no padding in their block.
        lengths = (captions != 0).any(dim=2).sum(dim=1)
        order = lengths.argsort(stable=True)
        # The biggest tensor holds a vector of E numbers per pair and word.
        block = max(1, _CELLS // (len(images) * captions[0].numel()))
        blocks = []
        for chosen in torch.split(order, block):
            # Without the recomputation, a step of 128 pairs with 1024 numbers per vector would keep 5 GiB. A block
            # draws no random numbers, so their state need not be kept.
            some = captions[chosen, : int(lengths[chosen].max())]
            blocks.append(checkpoint(self._block, images, some, use_reentrant=False, preserve_rng_state=False))
        parts, statistics = zip(*blocks, strict=True)
        self._track(torch.cat(statistics))
        return torch.cat(parts, dim=1)[:, order.argsort()]

    def _block(self, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of some captions, (I, C), and statistics of each, (C, ...)."""
        nodes, mask = self.alignments(images, captions)
        vectors, statistics = self.combine(nodes, mask)
        # In float32: half precision would merge scores that differ by less than 4e-3.
        with torch.autocast(vectors.device.type, enabled=False):
            return torch.sigmoid(self.score(vectors.float())[:, :, 0]), statistics

    def alignments(self, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the similarity vectors of every pair, first the global one, then one per word.

        `images`: (I, 1 + R, E) float. `captions`: (C, 1 + T, E) float. Returns `nodes`, (I, C, 1 + T, S) float; `mask`,
        (C, 1 + T) bool: nodes that count.
        """
        regions, words = images[:, 1:], captions[:, 1:]
        has_word, has_region = (words != 0).any(dim=2), (regions != 0).any(dim=2)
        weights = attention(regions, words, has_region, has_word)
        # The difference of the attended mean and the word, in one product.
        minuend = words.flatten(0, 1).expand(len(images), -1, -1)
        difference = torch.baddbmm(minuend, weights.flatten(1, 2), regions, beta=-1)
        local = unit(self.local_similarity(difference * difference)).view(len(images), *has_word.shape, -1)
        global_node = unit(self.global_similarity((images[:, None, 0] - captions[:, 0]) ** 2))
        return torch.cat([global_node[:, :, None], local], dim=2), pad(has_word, (1, 0), value=True)

    @abstractmethod
    def combine(self, nodes: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Combine the nodes of each pair, (I, C, N, S), to one vector, (I, C, S); also return statistics, (C, ...)."""

    def _track(self, statistics: Tensor) -> None:
        """Take note of the statistics of all captions of a batch."""


class SGR(SimilarityModel):
    """Similarity graph reasoning: three steps of attention among similarity vectors; the global node is the result."""

    def __init__(self, width: int, vocabulary: Vocabulary, embed_dim: int = 1024, word_dim: int = 300) -> None:
        super().__init__(width, vocabulary, embed_dim, word_dim)
        self.steps = nn.ModuleList(_GraphStep(self.similarity) for _ in range(3))

    def combine(self, nodes: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the global node after all steps."""
        for step in self.steps:
            # Only the global node is read after the last step.
            nodes = step(nodes[:, :, :1] if step is self.steps[-1] else nodes, nodes, mask)
        return nodes[:, :, 0], nodes.new_zeros(len(mask), 0)


class SAF(SimilarityModel):
    """Similarity attention filtration: a gate per similarity vector, and the gated mean as the result."""

    def __init__(self, width: int, vocabulary: Vocabulary, embed_dim: int = 1024, word_dim: int = 300) -> None:
        super().__init__(width, vocabulary, embed_dim, word_dim)
        self.gate, self.norm = nn.Linear(self.similarity, 1), nn.BatchNorm1d(1)
        xavier(self.gate)

    def combine(self, nodes: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of the nodes, weighted by their gates, and mean and variance of each caption's gates."""
        logits = self.gate(nodes)[:, :, :, 0].float()
        # The released code scores caption by caption, so the statistics of a caption are over all images and its nodes.
        count = (mask.sum(dim=1) * len(nodes)).to(logits.dtype)
        mean = logits.masked_fill(~mask, 0).sum(dim=(0, 2)) / count
        centred = (logits - mean[:, None]).masked_fill(~mask, 0)
        variance = centred.square().sum(dim=(0, 2)) / count
        unbiased = variance * count / (count - 1)
        norm: Any = self.norm
        if not self.training:
            centred, variance = logits - norm.running_mean, norm.running_var.expand(len(mask))
        scaled = centred * torch.rsqrt(variance + norm.eps)[:, None]
        gates = torch.sigmoid(scaled * norm.weight + norm.bias).masked_fill(~mask, 0)
        weights = gates / (gates.sum(dim=2, keepdim=True) + 1e-8)
        return unit((weights[:, :, None] @ nodes)[:, :, 0]), torch.stack([mean, unbiased], dim=1).detach()

    def _track(self, statistics: Tensor) -> None:
        """Move the running statistics towards the means over the captions of a training batch."""
        if self.training and torch.is_grad_enabled():
            norm: Any = self.norm
            for running, value in zip((norm.running_mean, norm.running_var), statistics.mean(dim=0), strict=True):
                running.lerp_(value, 0.1)


def attention(regions: Tensor, words: Tensor, has_region: Tensor, has_word: Tensor) -> Tensor:
    """Return the weights of the regions for each word (SCAN's text-to-image attention, temperature 9).

    Cosines of a region, cut at 0 with a slope of 0.1 below, are scaled to length 1 over the words of the caption. The
    softmax over regions gives the weights. They are scaled to give the weighted sum of the regions length 1.

    `regions`: (I, R, E) float32. `words`: (C, T, E) float32. `has_region`: (I, R) bool. `has_word`: (C, T) bool.
    Returns (I, C, T, R) float32: computed in float32 also under autocast.
    """
    with torch.autocast(regions.device.type, enabled=False):
        cosines = (words.flatten(0, 1) @ regions.transpose(1, 2)).view(len(regions), *has_word.shape, -1)
        cosines = leaky_relu(cosines, 0.1).masked_fill(~has_word[:, :, None], 0)
        scaled = cosines / (cosines.norm(dim=2, keepdim=True) + 1e-8)
        # Not -inf: an image with only zero regions has equal weights instead of NaN.
        lowest = torch.finfo(scaled.dtype).min
        weights = (9 * scaled).masked_fill(~has_region[:, None, None], lowest).softmax(dim=3)
        # The length of the weighted sum, by products of regions: R numbers per word instead of E.
        products = (weights.flatten(1, 2) @ (regions @ regions.transpose(1, 2))).view_as(weights)
        squared = (products * weights).sum(dim=3, keepdim=True)
        scaled_weights: Tensor = weights / (squared.clamp(min=1e-16).sqrt() + 1e-8)
        return scaled_weights


class _GlobalVector(nn.Module):
    """Mean of local vectors, weighted by their agreement with the plain mean; `norm` adds batch normalisation."""

    def __init__(self, embed_dim: int, norm: bool = False) -> None:
        super().__init__()
        self.local, self.mean = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.weight = nn.Linear(embed_dim, 1)
        self.local_norm, self.mean_norm = (nn.BatchNorm1d(embed_dim) if norm else nn.Identity() for _ in range(2))
        self.drop = nn.Dropout(_DROP)
        xavier(self.local, self.mean, self.weight)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Put the global vector before the local ones: (B, N, E) to (B, 1 + N, E)."""
        mean = vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True)
        # Without padding, because it would enter the statistics of the batch norm.
        flat = self.drop(torch.tanh(self.local_norm(self.local(vectors[mask]).float())))
        hidden_mean = self.drop(torch.tanh(self.mean_norm(self.mean(mean).float())))
        owner = mask.nonzero()[:, 0]
        agreement = self.weight(flat * hidden_mean[owner])[:, 0].float()
        logits = agreement.new_full(mask.shape, -torch.inf)
        logits[mask] = agreement
        weighted = (logits.softmax(dim=1)[:, :, None] * vectors).sum(dim=1)
        return torch.cat([unit(weighted)[:, None], vectors], dim=1)


class _GraphStep(nn.Module):
    """One step of reasoning: every query node becomes the attended mean of all nodes, through a layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # A bias of the keys would add the same number to all edges of a query, without an effect on the softmax.
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        xavier(self.query, self.key, self.out)

    def forward(self, queries: Tensor, nodes: Tensor, mask: Tensor) -> Tensor:
        """Update some nodes, (I, C, Q, S), by all nodes, (I, C, N, S); `mask`, (C, N), marks those that count."""
        # (Q x + q) . K y = (K^T Q x + K^T q) . y: one product per node instead of two.
        keyed = linear(queries, self.key.weight.T @ self.query.weight, self.query.bias @ self.key.weight)
        edges = (keyed @ nodes.transpose(2, 3)).masked_fill(~mask[:, None], -torch.inf)
        updated: Tensor = torch.relu(self.out(edges.softmax(dim=3) @ nodes))
        return updated
