"""Description of a corpus, which `relabel ingest` prints and records in the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.corpus import REFERENCES, SPLITS, Corpus
from relabel.corpus.tokenizers import lower_tokens

FIRST = "reference sets (cider, meteor, pooling), CxC's pairs, ECCV Caption, 1K and 5K retrieval, SCAN's files"
ALL = "encodings, neighbours, training"
"""Uses of the first five captions of an image (`FIRST`) and of all captions (`ALL`)."""

Hashes = NDArray[np.uint64]
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
    maximum of captions per image; `duplicates`: see `duplicates`, for texts as written and for their tokens; `tokens`:
    tokenizer (`lower_split` if the corpus has no PTB tokens), total, minimum, median and maximum per caption, captions
    without tokens, size of the vocabulary; `protocols`: captions among the first five of their image and beyond, with
    their uses.
    """
    sizes = np.diff(corpus.indptr)
    texts, tokens = corpus.table["text"], corpus.table["tokens"]
    tokenizer = "lower_split" if tokens.null_count else "ptb"
    # Per caption, only hashes and numbers of tokens are in memory for all captions.
    hashes: tuple[list[Hashes], list[Hashes]] = ([], [])
    counted, vocabulary = list[NDArray[np.int32]](), set[str]()
    for start in range(0, len(corpus), _CHUNK):
        part = texts.slice(start, _CHUNK).combine_chunks()
        if tokens.null_count:
            words = pa.array(lower_tokens(part.to_pylist()), pa.string())
        else:
            words = tokens.slice(start, _CHUNK).combine_chunks()
        hashes[0].append(hash_texts(part))
        hashes[1].append(hash_texts(words))
        # Tokens are joined by one space, so a text with tokens has one token more than spaces.
        counted.append(np.where(_lengths(words) > 0, pc.count_substring(words, " ").to_numpy() + 1, 0).astype(np.int32))
        vocabulary.update(_vocabulary(words))
    lengths = np.concatenate(counted)
    first = int(np.minimum(sizes, REFERENCES).sum())
    return {
        **counts(corpus.image, corpus.splits),
        "references": _spread(sizes),
        "duplicates": {
            "as_written": duplicates(np.concatenate(hashes[0]), corpus.image),
            "as_tokens": duplicates(np.concatenate(hashes[1]), corpus.image),
        },
        "tokens": {
            "tokenizer": tokenizer,
            "total": int(lengths.sum()),
            **_spread(lengths),
            "captions_without": int((lengths == 0).sum()),
            "vocabulary": len(vocabulary),
        },
        "protocols": {
            "first_five": {"captions": first, "used_by": FIRST},
            "all": {"captions": len(corpus), "beyond_first_five": _beyond(corpus, sizes), "used_by": ALL},
        },
    }


def hash_texts(texts: pa.Array) -> Hashes:
    """Return a 16-byte BLAKE2b of each text; among a billion texts, two have the same by chance at 1 in 10^20."""
    joined = b"".join(blake2b(raw, digest_size=16).digest() for raw in texts.cast(pa.binary()).to_pylist())
    return np.frombuffer(joined, np.uint64).reshape(-1, 2)


def duplicates(texts: Hashes, image: NDArray[np.int32]) -> dict[str, dict[str, int]]:
    """Count equal texts.

    `texts`: (N, 2) uint64; hashes of the texts by `hash_texts`. `image`: (N,) int32. Returns dict: `within_images`:
    images with a repeated text, and captions that repeat a text of their image; `across_images`: texts that occur in
    several images, and the captions and images with these texts.
    """
    # Equal texts get equal numbers.
    order = np.lexsort((texts[:, 0], texts[:, 1]))
    text = np.empty(len(texts), np.int64)
    text[order] = np.cumsum((texts[order] != texts[np.roll(order, 1)]).any(axis=1))
    width = int(image.max(initial=0)) + 1
    # Each distinct pair of text and image as one number.
    pairs, times = np.unique(text * width + image, return_counts=True)
    shared = np.bincount(pairs // width) > 1
    return {
        "within_images": {
            "images": len(np.unique(pairs[times > 1] % width)),
            "captions": len(text) - len(pairs),
        },
        "across_images": {
            "texts": int(shared.sum()),
            "captions": int(shared[text].sum()),
            "images": len(np.unique(image[shared[text]])),
        },
    }


def report_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a report as pairs of a title and a value, both formatted."""
    tokens, first, every = report["tokens"], report["protocols"]["first_five"], report["protocols"]["all"]
    beyond = {s: every["beyond_first_five"][s] for s in SPLITS if every["beyond_first_five"].get(s)}
    by_split = ", ".join(f"{n:,} in {s}" for s, n in beyond.items())
    lines = [(s, _size_line(report["splits"][s])) for s in SPLITS if s in report["splits"]]
    lines += [
        ("all", _size_line(report)),
        ("captions per image", _spread_line(report["references"])),
        ("first five of an image", f"{first['captions']:,}, used by {first['used_by']}"),
        (
            "beyond the first five",
            f"{sum(beyond.values()):,}" + (f" ({by_split}), used by {ALL} alone" if beyond else ""),
        ),
    ]
    if skipped := report.get("skipped"):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        lines.append(("skipped", f"{sum(skipped.values()):,} records ({reasons})"))
    for name, title in (("as_written", "same text"), ("as_tokens", "same tokens")):
        within, across = (report["duplicates"][name][k] for k in ("within_images", "across_images"))
        lines += [
            (f"{title} in an image", f"{within['captions']:,} captions repeat one, in {within['images']:,} images"),
            (
                f"{title} across images",
                f"{across['texts']:,} texts: {across['captions']:,} captions of {across['images']:,} images",
            ),
        ]
    lines.append(
        (
            f"tokens ({tokens['tokenizer']})",
            f"{tokens['total']:,}, {tokens['vocabulary']:,} distinct; per caption {_spread_line(tokens)}; "
            f"{tokens['captions_without']:,} captions without any",
        )
    )
    return lines


def _size_line(size: dict[str, int]) -> str:
    return f"{size['captions']:,} captions of {size['images']:,} images"


def _beyond(corpus: Corpus, sizes: NDArray[np.int64]) -> dict[str, int]:
    return {s: int(np.maximum(sizes[list(corpus.images([s]))] - REFERENCES, 0).sum()) for s in corpus.splits}


def _spread(values: NDArray[Any]) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}


def _spread_line(spread: dict[str, float]) -> str:
    return f"{spread['min']:,} to {spread['max']:,}, median {spread['median']:g}"


def _lengths(texts: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.binary_length(texts).to_numpy()
    return lengths


def _vocabulary(tokens: pa.Array) -> Iterable[str]:
    # Splitting an empty text gives one empty word.
    words = pc.list_flatten(pc.split_pattern(tokens, " "))
    return filter(None, words.unique().to_pylist())
