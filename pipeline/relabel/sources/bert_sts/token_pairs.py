"""Pairs of captions as rows of token ids: captions are tokenized once, and joined without the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.numeric.csr import indptr_of

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
_FIRST, _SECOND = "a man rides a red bike", "two dogs sit"
_PROBES = (
    ("Two dogs.", "A man with a red helmet on a small moped on a dirt road."),
    ("Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!", "a"),
    ("TWO CATS", "TWO CATS"),
)


@dataclass(frozen=True, eq=False)
class Texts:
    """Distinct texts as token ids, without special tokens.

    `ids`: (indptr[-1],) int32; text t is ``ids[indptr[t]:indptr[t + 1]]``.
    `indptr`: (T + 1,) int64.
    """

    ids: I4
    indptr: I8

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Texts:
        """Concatenate texts given as lists of ids."""
        return cls(np.array([i for one in lists for i in one], np.int32), indptr_of([len(one) for one in lists]))

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.indptr) - 1

    def __getitem__(self, t: int) -> I4:
        """Return the ids of text t."""
        return self.ids[self.indptr[t] : self.indptr[t + 1]]

    @property
    def sizes(self) -> I8:
        """Number of ids of each text, (T,) int64."""
        return np.diff(self.indptr)


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens that a tokenizer puts around two texts, and the type of each token.

    `head`, `middle`, `tail`: special tokens before, between and after the texts.
    `types`: token types of head, first text, middle, second text and tail; None if the model takes no types.
    """

    head: tuple[int, ...]
    middle: tuple[int, ...]
    tail: tuple[int, ...]
    types: tuple[int, int, int, int, int] | None

    @property
    def size(self) -> int:
        """Number of special tokens of a pair."""
        return len(self.head) + len(self.middle) + len(self.tail)

    @classmethod
    def of(cls, tokenizer: Any, folder: Path) -> SpecialTokens:
        """Infer the special tokens from one pair, and check them on a few more pairs."""
        special = cls._infer(tokenizer)
        # The probes have punctuation, other scripts, equal texts and a text of one letter.
        for first, second in _PROBES if special is not None else ():
            a, b = token_ids(tokenizer, [first, second], None)
            joined = tokenizer(first, second)
            row = special.row(np.array(a, np.int32), np.array(b, np.int32))  # type: ignore[union-attr]
            expected = [joined["input_ids"], joined.get("token_type_ids") or [0] * len(row[0])]
            if [part.tolist() for part in row] != expected:
                special = None
                break
        if special is None:
            message = "this model's tokenizer does not join two texts by special tokens alone"
            raise UsageError(message, where=str(folder), todo="Name another `model`.")
        return special

    def row(self, first: I4, second: I4) -> tuple[I8, I8]:
        """Return the ids and token types of one pair: two (L,) int64."""
        ids = np.concatenate([self.head, first, self.middle, second, self.tail]).astype(np.int64)
        parts = (len(self.head), len(first), len(self.middle), len(second), len(self.tail))
        return ids, np.repeat(np.array(self.types or (0,) * 5, np.int64), parts)

    @classmethod
    def _infer(cls, tokenizer: Any) -> SpecialTokens | None:
        """Infer the special tokens from one pair; None if a text's ids change inside the pair."""
        a, b = token_ids(tokenizer, [_FIRST, _SECOND], None)
        joined = tokenizer(_FIRST, _SECOND)
        ids, types = list(joined["input_ids"]), joined.get("token_type_ids")
        start_a = next((i for i in range(len(ids)) if ids[i : i + len(a)] == a), -1)
        start_b = next((i for i in range(start_a + len(a), len(ids)) if ids[i : i + len(b)] == b), -1)
        if min(start_a, start_b) < 0:
            return None
        # Borders of head, first text, middle, second text and tail.
        cuts = (0, start_a, start_a + len(a), start_b, start_b + len(b), len(ids))
        head, middle, tail = (tuple(ids[cuts[i] : cuts[i + 1]]) for i in (0, 2, 4))
        if types is None:
            return cls(head, middle, tail, None)
        # An empty part has no token to read a type from; its type is never used.
        part_types = [types[cuts[i]] if cuts[i] < cuts[i + 1] else 0 for i in range(5)]
        return cls(head, middle, tail, (part_types[0], part_types[1], part_types[2], part_types[3], part_types[4]))


def token_ids(tokenizer: Any, texts: Sequence[str], limit: int | None) -> list[list[int]]:
    """Return the token ids of each text, without special tokens, truncated to `limit` ids if it is given."""
    truncation = {"truncation": True, "max_length": limit} if limit is not None else {}
    options = {"add_special_tokens": False, "padding": False, "return_attention_mask": False, "verbose": False}
    ids: list[list[int]] = tokenizer(list(texts), **options, **truncation)["input_ids"] if len(texts) else []
    return ids


def truncated_lengths(first: I8, second: I8, room: int) -> tuple[I8, I8]:
    """Truncate P pairs to `room` ids, the longer text first as tokenizers do. Each text may keep half of the room.

    `first`, `second`: (P,) int64; ids of each text. `room`: ids of both texts together. Returns `first, second`, (P,)
    int64: ids that are kept of each text.
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    # The longer text gives way until both are equally long.
    kept = np.minimum(long, np.maximum(short, room - short))
    too_long = short + kept > room
    # Both texts exceed half of the room, so each gets half.
    short, kept = np.where(too_long, room // 2, short), np.where(too_long, room - room // 2, kept)
    swapped = first > second
    return np.where(swapped, kept, short), np.where(swapped, short, kept)
