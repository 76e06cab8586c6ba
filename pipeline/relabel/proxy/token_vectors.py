"""Captions through a sentence-transformers model, token by token: its last states, before they are pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from relabel.sources.sentence_encoder import SentenceEncoder, equal_lengths
from relabel.sources.sentence_model import quiet
from relabel.sources.torch_threads import one_thread_each

_TOKENS = 2048  # a batch
_ENDS = 2  # a text's first and last token are the model's own marks


class TokenEncoder(SentenceEncoder):
    """A loaded model whose states are wanted one by one."""

    def token_vectors(
        self, texts: Sequence[str], most: int, advance: Callable[[int], None] = lambda _: None
    ) -> NDArray[np.float16]:
        """Encode N texts: (N, most, D) float16, the states of a text's first words, then zeros; the ends left out.

        A text without words has the state of its end alone.
        Texts of equal token counts share a batch, as `SentenceEncoder.encode` has them, so a vector depends on its
        text alone (to the last bit of float16, on any number of threads).
        """
        with quiet():
            tokens, _ = self._tokens([text.strip() for text in texts])
        out = np.zeros((len(tokens), most, self._model.get_embedding_dimension() or 0), np.float16)

        def work(these: NDArray[np.int64]) -> int:
            with torch.inference_mode(), self._autocast():
                batch = [tokens[i] for i in these]
                batch *= -(-64 // max(1, len(batch) * len(batch[0])))  # as SentenceEncoder does, for the same reason
                ids = torch.tensor(batch, device=self.device)
                states = self._model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["token_embeddings"]
                found = states[: len(these), 1 : max(2, len(batch[0]) - _ENDS + 1)][:, :most].float().cpu().numpy()
                out[these, : found.shape[1]] = found
            return len(these)

        for done in one_thread_each(work, equal_lengths([len(t) for t in tokens], _TOKENS), self._threads):
            advance(done)
        return out
