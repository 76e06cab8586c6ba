"""Figures of an audit: equal captions, growth of false negatives, and recall with corrected positives."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from relabel.core.numeric.statistics import Interval, Vector, draw_clusters, percentile_interval
from relabel.corpus import Corpus
from relabel.judge.runs import Run
from relabel_train.metrics import average_precision_at_r, own_positives, positives_of, rank_positives
from relabel_train.metrics.positives import Ints, Positives

RECALL_KS = (1, 5, 10)
SIZES = (1000, 2000, 5000)
"""Sizes of the image subsets that show how false negatives grow."""
_DRAWS = 20  # subsets of a size
_RESAMPLES = 1000
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Record = dict[str, Any]


def clustered_means(values: Vector, cluster: Ints, resamples: int = _RESAMPLES, seed: int = 0) -> list[Interval]:
    """Return a 95% bootstrap interval of the mean of each column. Clusters are resampled.

    `values`: (Q, F). `cluster`: (Q,) int; cluster numbers, in any numbering.
    """
    index = np.unique(cluster, return_inverse=True)[1]
    clusters = int(index.max(initial=-1)) + 1
    sums = np.stack([np.bincount(index, column, clusters) for column in (np.ones(len(values)), *values.T)], axis=1)
    # One bootstrap sample at a time, because a split may have 100,000 images.
    drawn = np.stack([counts @ sums for counts in draw_clusters(clusters, resamples, seed)])
    means = drawn[:, 1:] / drawn[:, :1]
    return [percentile_interval(column) or Interval(np.nan, np.nan) for column in means.T]


def equal_captions(corpus: Corpus, split: str) -> tuple[list[Record], int]:
    """Count the captions of a split that another image also has.

    Captions are compared exactly, and without case, punctuation and repeated spaces. Returns one record per split to
    compare with, starting with `split` itself, and the number of images of `split` that have the same set of captions
    as another image of the corpus.
    """
    rows, texts = corpus.split_rows(split), corpus.texts
    others = [name for name in corpus.splits if name != split and split != "all"]
    records: list[Record] = [{"compared_with": name, "captions": len(rows)} for name in (split, *others)]
    forms = {"equal": [text.strip() for text in texts], "equal_words": [words_of(text) for text in texts]}
    for form, keys in forms.items():
        code = np.asarray(pa.array(keys).dictionary_encode().indices, np.int64)
        mine = code[rows.start : rows.stop]
        for record in records:
            name = record["compared_with"]
            if name != split:
                theirs = corpus.split_rows(name)
                shared = np.isin(mine, code[theirs.start : theirs.stop])
            else:
                # If two images have a text, its first and its last image differ.
                image = corpus.image[rows.start : rows.stop].astype(np.int64)
                first, last = (np.full(len(code), end) for end in (len(corpus), -1))
                np.minimum.at(first, mine, image)
                np.maximum.at(last, mine, image)
                shared = (first != last)[mine]
            record[form] = int(shared.sum())
    sets = [frozenset(captions.tolist()) for captions in np.split(code, corpus.indptr[1:-1])]
    count = Counter(sets)
    return records, sum(count[sets[image]] > 1 for image in corpus.images_of(rows))


def words_of(text: str) -> str:
    """Return the words of a caption in lower case, without punctuation."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def growth(image: Ints, caption: Ints, owner: Ints, sizes: Sequence[int] = SIZES, seed: int = 0) -> list[Record]:
    """Return the share of captions with a false negative in random subsets of the images, as means over 20 subsets.

    `image`, `caption`: (P,) position of the image and of the caption of each false negative. `owner`: (N,) position of
    the image of each caption. `sizes`: numbers of images; the last record is that of all images.
    """
    generator, images, records = np.random.default_rng(seed), int(owner.max(initial=-1)) + 1, list[Record]()
    for size in [*(size for size in sizes if size < images), images]:
        shares, pairs = [], []
        for _ in range(_DRAWS if size < images else 1):
            kept = np.zeros(images, np.bool_)
            kept[generator.permutation(images)[:size]] = True
            both = kept[image] & kept[owner[caption]]
            shares.append(100 * len(np.unique(caption[both])) / np.count_nonzero(kept[owner]))
            pairs.append(np.count_nonzero(both))
        share, count = round(float(np.mean(shares)), 2), round(float(np.mean(pairs)))
        records.append({"images": size, "captions_with_pair_percent": share, "pairs": count})
    return records


def corrected_positives(image: Ints, caption: Ints, owner: Ints) -> Positives:
    """Return the pairs of a split and its false negatives as positives. The parameters are those of `growth`."""
    i2t: dict[int, list[int]] = {}
    t2i: dict[int, list[int]] = {}
    pairs = (np.concatenate([owner, image]), np.concatenate([np.arange(len(owner)), caption]))
    for m, n in zip(*(side.tolist() for side in pairs), strict=True):
        i2t.setdefault(m, []).append(n)
        t2i.setdefault(n, []).append(m)
    # Queries are in the order of `own_positives`.
    return positives_of(dict(sorted(i2t.items())), t2i, range(len(i2t)), range(len(owner)))


def compare_positives(
    run: Run, corrected: Positives, owner: Ints, threads: int | None = None
) -> tuple[list[Record], list[Record], list[str]]:
    """Return figures with usual and with corrected positives, the ranks of queries, and notes.

    R@K and mAP@R are percentages with 95% intervals over images. A figure that reads more candidates of a query than
    the run has is left out, and a note names it. Ranks count from 1 and are those of a query's best positive, or None
    if the run does not list it. Only queries with a difference are returned, with the largest difference first.

    `owner`: (N,) position of the image of each caption that has scores.
    """
    scores, usual = run.scores, own_positives(owner, run.scores.shape[0])
    figures, queries, notes = list[Record](), list[Record](), list[str]()
    differences = list[int]()
    for direction, candidates in run.candidates.items():
        columns, best = [], []
        for positives in (usual, corrected):
            side = positives.i2t if direction == "i2t" else positives.t2i
            ranks, hits = rank_positives(scores, direction, side, int(side.total.max()), threads=threads)
            columns += [*(ranks < k for k in RECALL_KS), average_precision_at_r(hits, side.total)]
            best.append(ranks + 1)
        values = 100 * np.stack(columns, axis=1).astype(np.float64)
        query, size = side.queries, candidates[side.queries]
        ends = clustered_means(values, query if direction == "i2t" else owner[query])
        cells = list(zip(values.mean(axis=0).round(2).tolist(), ends, strict=True))
        needs = {f"R@{k}": np.full(len(side), k) for k in RECALL_KS} | {"mAP@R": side.total}
        for (name, need), *both in zip(needs.items(), cells, cells[len(needs) :], strict=False):
            if short := np.count_nonzero(size < np.minimum(need, scores.shape[direction == "i2t"])):
                reads = f"up to {need.max():,} candidates of a query, and {short:,} queries have fewer"
                notes.append(f"{direction} {name} is left out: it reads {reads}")
                continue
            record: Record = {"direction": direction, "figure": name}
            for kind, (mean, interval) in zip(("usual", "corrected"), both, strict=True):
                record |= {kind: mean, f"{kind}_interval": [round(end, 2) for end in interval]}
            figures.append(record)
        # A positive that is not listed is somewhere after the last candidate.
        first, second = (np.minimum(each, size + 1) for each in best)
        for i in np.flatnonzero(first > second).tolist():
            rank, other = int(first[i]), int(second[i])
            shown = rank if rank <= size[i] else None
            queries.append({"direction": direction, "query": int(query[i]), "rank": shown, "corrected_rank": other})
            differences.append(rank - other)
    order = np.argsort(-np.array(differences, np.int64), kind="stable")
    return figures, [queries[i] for i in order.tolist()], notes
