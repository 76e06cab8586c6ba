"""Token vectors of captions: the last hidden states of a sentence-transformers model before pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from relabel.core.numeric.threads import one_thread_each
from relabel.core.runtime import Advance, ignore_progress
from relabel.sources.models.encoder import SentenceEncoder, batch_by_length
from relabel.sources.models.loading import quiet

_TOKENS = 2048  # tokens per batch
_SPECIAL = 2  # special tokens per text, one at each end


class TokenEncoder(SentenceEncoder):
    """Sentence encoder that returns hidden states per token."""

    def token_vectors(self, texts: Sequence[str], most: int, advance: Advance = ignore_progress) -> NDArray[np.float16]:
        """Encode texts into the states of their first tokens, without the special tokens, padded with zeros.

        A text without words has the state of its closing special token. Texts of equal token counts share a batch, as
        in `SentenceEncoder.encode`, so that a vector depends on its text alone, to the last bit of float16 and on any
        number of threads.

        Parameters
        ----------
        texts : sequence of str
            N texts.
        most : int
            Maximum number of vectors per text.
        advance : callable
            Receives the number of texts of each finished batch.

        Returns
        -------
        (N, most, D) float16
        """
        with quiet():
            tokens, _ = self._tokens([text.strip() for text in texts])
        out = np.zeros((len(tokens), most, self._model.get_embedding_dimension() or 0), np.float16)

        def encode(rows: NDArray[np.int64]) -> int:
            with torch.inference_mode(), self._autocast():
                batch = [tokens[i] for i in rows]
                # Repeat batches below 64 tokens, as SentenceEncoder does: products of few rows may round differently.
                batch *= -(-64 // max(1, len(batch) * len(batch[0])))
                ids = torch.tensor(batch, device=self.device)
                states = self._model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["token_embeddings"]
                # Without the special tokens; a text without words keeps the closing one.
                words = states[: len(rows), 1 : max(2, len(batch[0]) - _SPECIAL + 1)][:, :most]
                out[rows, : words.shape[1]] = words.float().cpu().numpy()
            return len(rows)

        for done in one_thread_each(encode, batch_by_length([len(t) for t in tokens], _TOKENS), self._threads):
            advance(done)
        return out
