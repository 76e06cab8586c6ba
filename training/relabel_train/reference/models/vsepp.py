"""VSE++ on regions: the baseline of the papers on listwise and graded losses.

Faghri et al., VSE++, BMVC 2018; with bottom-up regions as Li et al. (S-NDCG) train it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relabel_train.reference.models.base import Model, Vocabulary, counted, run_gru, xavier


class VSEPP(Model):
    """Regions: a linear layer, the maximum over regions, length 1. Captions: the last state of a GRU, length 1.

    `width`: D of an image's vectors. `embed_dim`, `word_dim`: E, and the width of word vectors; 1024 and 300 in the
    papers.

    Linear layer: Xavier-uniform, bias 0. Words: uniform in -0.1..0.1. The GRU with torch's defaults. No dropout.
    """

    def __init__(self, width: int, vocabulary: Vocabulary, embed_dim: int = 1024, word_dim: int = 300) -> None:
        super().__init__(vocabulary)
        self.fc = nn.Linear(width, embed_dim)
        self.words = nn.Embedding(len(vocabulary), word_dim)
        self.gru = nn.GRU(word_dim, embed_dim, batch_first=True)
        xavier(self.fc)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def encode_images(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Embed B images, (B, R, D), as (B, E) float32."""
        mask = counted(lengths, features.shape[1])[:, :, None]
        # Padding is below every region in the maximum.
        regions = self.fc(features).masked_fill(~mask, -torch.inf)
        return self.finish(regions.amax(dim=1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Embed B captions, prepared by `tokens`, as (B, E) float32."""
        _, last = run_gru(self.gru, self.words(tokens), lengths)
        return self.finish(last[0])
