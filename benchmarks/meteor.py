"""METEOR of images' references against captions of other images: pairs per second, compared with pycocoevalcap.

    python benchmarks/meteor.py

Both sides run the same jar on the same PTB tokens of COCO's test split. pycocoevalcap's wrapper normalises every text
of every pair and sends one pair at a time; its start, which loads 5.3 million paraphrases, is not timed. The
benchmark stops if scores differ by more than 1e-12. No caption is among its own references, since relabel scores such
pairs without the jar.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import Table, agree, alternate, coco_captions, encoded, options

from relabel.core.java import find_java


def wrapper() -> Any:
    from pycocoevalcap.meteor.meteor import Meteor

    os.environ["PATH"] = str(find_java().parent) + os.pathsep + os.environ["PATH"]
    scorer = Meteor()
    scorer.compute_score({0: ["a dog"]}, {0: ["a cat"]})  # returns once the tables are loaded
    return scorer


def main() -> None:
    args = options(__doc__, captions=25_000, pairs=5000, processes=2)
    with tempfile.TemporaryDirectory() as folder:
        captions = coco_captions(args.captions)
        relevance: Any = encoded(Path(folder), captions, "meteor", "ptb", args.threads, processes=args.processes)
        run(args, relevance)


def run(args: Any, relevance: Any) -> None:
    corpus, draw, count = relevance.corpus, np.random.default_rng(0), 4 * args.pairs
    images, rows = draw.integers(0, len(corpus.image_ids), count), draw.integers(0, len(corpus), count, dtype=np.int32)
    rows = np.where(corpus.image[rows] == images, (rows + 10) % len(corpus), rows).astype(np.int32)
    sets, tokens, scorer = corpus.references(images), corpus.tokens, wrapper()
    references = {p: [tokens[r] for r in sets[p]] for p in range(args.pairs)}
    candidates = {p: [tokens[rows[p]]] for p in range(args.pairs)}
    works = {
        "relabel": lambda: relevance.pairs(sets, rows),
        "pycocoevalcap": lambda: np.array(scorer.compute_score(references, candidates)[1]),
    }
    ours, theirs = alternate(works, args.repeats).values()
    relevance.close()
    apart = agree("pycocoevalcap", ours.result[: args.pairs], theirs.result, 1e-12)
    table, rate = Table("METEOR, five references per pair, COCO's test split"), count / ours.wall
    table.add(f"{args.processes} processes", "pairs/s", rate, "pycocoevalcap", args.pairs / theirs.wall, apart=apart)
    table.end("meteor", args.save, "numpy", "pycocoevalcap")


if __name__ == "__main__":
    main()
