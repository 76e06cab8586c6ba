"""CIDEr as explicit loops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

Words = list[str]


def counted(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + k]) for k in range(1, n + 1) for i in range(len(words) - k + 1))


def loop_cider(
    references: Sequence[Words],
    candidate: Words,
    documents: Sequence[Sequence[Words]],
    n: int = 4,
    sigma: float | None = 6.0,
) -> float:
    """Compute CIDEr-D by explicit loops from the formula, or plain CIDEr if sigma is None."""

    def idf(gram: tuple[str, ...]) -> float:
        holding = sum(any(gram in counted(caption, n) for caption in document) for document in documents)
        return math.log(len(documents)) - math.log(max(1, holding))

    total = 0.0
    for reference in references:
        ref, can = counted(reference, n), counted(candidate, n)
        for order in range(1, n + 1):
            norm_ref = math.sqrt(sum((t * idf(w)) ** 2 for w, t in ref.items() if len(w) == order))
            norm_can = math.sqrt(sum((t * idf(w)) ** 2 for w, t in can.items() if len(w) == order))
            if norm_ref == 0 or norm_can == 0:
                continue
            dot = 0.0
            for gram, count in can.items():
                if len(gram) == order and gram in ref:
                    shared = count if sigma is None else min(count, ref[gram])
                    dot += shared * ref[gram] * idf(gram) ** 2
            bigrams = max(0, len(candidate) - 1) - max(0, len(reference) - 1)
            gauss = 1.0 if sigma is None else math.exp(-(bigrams**2) / (2 * sigma**2))
            total += gauss * dot / (norm_ref * norm_can)
    return 10.0 * total / (n * len(references))
