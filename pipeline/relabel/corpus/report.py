"""Description of a corpus, which `relabel ingest` prints and records in the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import SPLITS, Corpus
from relabel.corpus.tokenizers import Tokenizer, lower_split

_CHUNK = 1 << 16  # captions in memory as Python objects


def counts(image: NDArray[np.int32], splits: Mapping[str, range]) -> dict[str, Any]:
    """Count images and captions, in total and per split.

    `image`: (N,) int32; image number of each row, ascending from 0. `splits`: rows of each split.
    """
    sizes = {
        split: {"images": int(image[rows.stop - 1] - image[rows.start]) + 1, "captions": len(rows)}
        for split, rows in splits.items()
    }
    return {"images": int(image[-1]) + 1, "captions": len(image), "splits": sizes}


def describe(corpus: Corpus) -> dict[str, Any]:
    """Describe a corpus.

    Returns dict: serialisable as JSON; `images`, `captions`, `splits`: see `counts`; `references`: minimum, median and
    maximum of captions per image; `tokens`: tokenizer (`lower_split` if the corpus has no PTB tokens), total, minimum,
    median and maximum per caption, captions without tokens, size of the vocabulary.
    """
    texts, tokens = corpus.table["text"], corpus.table["tokens"]
    tokenizer: Tokenizer = "lower_split" if tokens.null_count else "ptb"
    counted, vocabulary = list[int](), set[str]()
    for start in range(0, len(corpus), _CHUNK):
        part = (texts if tokens.null_count else tokens).slice(start, _CHUNK).to_pylist()
        for words in map(lower_split, part) if tokens.null_count else (filter(None, text.split(" ")) for text in part):
            listed = list(words)
            counted.append(len(listed))
            vocabulary.update(listed)
    lengths = np.array(counted)
    return {
        **counts(corpus.image, corpus.splits),
        "references": _spread(np.diff(corpus.indptr)),
        "tokens": {
            "tokenizer": tokenizer,
            "total": int(lengths.sum()),
            **_spread(lengths),
            "captions_without": int((lengths == 0).sum()),
            "vocabulary": len(vocabulary),
        },
    }


def report_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a report as pairs of a title and a value, both formatted."""
    tokens = report["tokens"]
    lines = [(s, _size_line(report["splits"][s])) for s in SPLITS if s in report["splits"]]
    lines += [("all", _size_line(report)), ("captions per image", _spread_line(report["references"]))]
    if skipped := report.get("skipped"):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        lines.append(("skipped", f"{sum(skipped.values()):,} records ({reasons})"))
    words = f"{tokens['total']:,}, {tokens['vocabulary']:,} distinct; per caption {_spread_line(tokens)}"
    lines.append((f"tokens ({tokens['tokenizer']})", f"{words}; {tokens['captions_without']:,} captions without any"))
    return lines


def _size_line(size: dict[str, int]) -> str:
    return f"{size['captions']:,} captions of {size['images']:,} images"


def _spread(values: NDArray[Any]) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}


def _spread_line(spread: dict[str, float]) -> str:
    return f"{spread['min']:,} to {spread['max']:,}, median {spread['median']:g}"
