"""Base class of models that embed images and captions into one space, and the vocabulary of their captions."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Model(nn.Module):
    """Model that embeds images and captions; `tokens` prepares texts for `encode_captions`."""

    sets: ClassVar[bool] = False
    """True if an encoding is a set of vectors, (B, N, E) padded with zeros, and scores are not cosines of them."""
    normalize: bool = True
    """False: embeddings keep their length. Scores are cosines in both cases."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return (B, T) int64 tokens and the (B,) int64 numbers of tokens that count."""
        return self.vocabulary(texts)

    @abstractmethod
    def encode_images(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Embed images, (B, R, D), as `finish`ed vectors, (B, E); `lengths`: how many of the R count, at least 1."""

    @abstractmethod
    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Embed B captions, prepared by `tokens`: (B, E) float32, `finish`ed."""

    def finish(self, vectors: Tensor) -> Tensor:
        """Return embeddings in float32, as unit vectors if `normalize` is set."""
        return unit(vectors) if self.normalize else vectors.float()

    def scores(self, images: Tensor, captions: Tensor) -> Tensor:
        """Return the scores s(V_i, T_j) of encodings, (B_images, B_captions): cosines of embeddings."""
        with torch.autocast(images.device.type, enabled=False):
            if not self.normalize:
                images, captions = unit(images), unit(captions)
            cosines: Tensor = images @ captions.T
        return cosines


def unit(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Divide vectors by their length plus eps, in float32."""
    x = x.float()
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return x / (length + eps)


def counted(lengths: Tensor, most: int) -> Tensor:
    """Mark the first `length` of `most` positions: (B, most) bool."""
    return torch.arange(most, device=lengths.device) < lengths[:, None]


def xavier(*layers: nn.Linear) -> None:
    """Draw the weights of layers as the released codes of the papers: Xavier-uniform, bias 0."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def run_gru(gru: nn.GRU, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run a GRU over padded sequences in float32, also under autocast: cuDNN would compute in float16.

    `values`: (B, T, D) float. Returns `states`, (B, T, H) float32: the mean of both directions if there are two, 0
    beyond the length; `last`, (directions, B, E) float32.
    """
    with torch.autocast(values.device.type, enabled=False):
        packed = pack_padded_sequence(values.float(), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = gru(packed)
        states = pad_packed_sequence(states, batch_first=True, total_length=values.shape[1])[0]
    if gru.bidirectional:
        forward, backward = states.chunk(2, dim=-1)
        states = (forward + backward) / 2
    return states, last


PAD, UNKNOWN, START, END, FIRST = range(5)
"""Numbers of padding, unknown words, start and end of a caption, and of the first word."""
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")


def words(text: str) -> list[str]:
    """Split a caption into lower-case words: runs of letters and digits."""
    return _WORD.findall(text.lower())


class Vocabulary:
    """Words, numbered from `FIRST`; the numbers below are those of padding, unknown words, start and end."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.words = tuple(vocabulary)
        self._number = {word: i for i, word in enumerate(self.words, FIRST)}

    @classmethod
    def of(cls, texts: Iterable[str], min_count: int = 4) -> Vocabulary:
        """Build from the words that occur at least `min_count` times in the texts, by (-count, word)."""
        counts = Counter(word for text in texts for word in words(text))
        frequent = [word for word, n in counts.items() if n >= min_count]
        return cls(sorted(frequent, key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return FIRST + len(self.words)

    def __call__(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return (B, T) int64 numbers, padded with 0, and the (B,) int64 lengths with start and end."""
        rows = [[START, *(self._number.get(w, UNKNOWN) for w in words(text)), END] for text in texts]
        padded = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
        return padded, torch.tensor([len(row) for row in rows])
