"""METEOR of references against captions of other images: pairs per CPU second, compared with pycocoevalcap.

    python benchmarks/meteor.py

Both sides read the same PTB tokens of COCO's test split. pycocoevalcap's wrapper runs METEOR's jar: it normalises every
text of every pair and sends one pair at a time. Its CPU time includes that of Java, but not the start, which loads 5.3
million paraphrases. relabel's encoding has a separate line. The benchmark stops if scores differ by more than 1e-12. No
caption is among its own references.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from harness import Table, agree, alternate, clock, coco_captions, encoded, options

from relabel.core.java import find_java
from relabel.corpus import References


def wrapper() -> Any:
    from pycocoevalcap.meteor.meteor import Meteor

    os.environ["PATH"] = str(find_java().parent) + os.pathsep + os.environ["PATH"]
    scorer = Meteor()
    scorer.compute_score({0: ["a dog"]}, {0: ["a cat"]})  # returns once the tables are loaded
    return scorer


def main() -> None:
    args = options(__doc__, captions=25_000, pairs=5000, times=20)
    with tempfile.TemporaryDirectory() as folder:
        captions = coco_captions(args.captions)
        made = clock(lambda: encoded(Path(folder), captions, "meteor", "ptb", args.threads))
        print(f"encoding {len(captions):,} captions: {made.cpu:.1f} CPU s, without Java's")
        run(args, made.result)


def run(args: Any, relevance: Any) -> None:
    """Compare both sides; relabel scores `times` as many pairs, for its clock."""
    corpus, draw, count = relevance.corpus, np.random.default_rng(0), args.times * args.pairs
    images, rows = draw.integers(0, len(corpus.image_ids), count), draw.integers(0, len(corpus), count, dtype=np.int32)
    rows = np.where(corpus.image[rows] == images, (rows + 10) % len(corpus), rows).astype(np.int32)
    table, scorer = Table("METEOR, COCO's test split"), wrapper()
    for name, sets in {
        "one reference": corpus.references(images, 1),
        "five references": corpus.references(images),
    }.items():
        compare(args, relevance, sets, rows, name, scorer, table)
    table.end("meteor", args.save, "numpy", "numba", "pycocoevalcap")


def compare(args: Any, relevance: Any, sets: References, rows: Any, name: str, scorer: Any, table: Table) -> None:
    tokens, java, seconds = relevance.corpus.tokens, psutil.Process(scorer.meteor_p.pid), list[float]()
    references = {p: [tokens[r] for r in sets[p]] for p in range(args.pairs)}
    candidates = {p: [tokens[rows[p]]] for p in range(args.pairs)}

    def of_wrapper() -> Any:
        before = java.cpu_times()
        scores = np.array(scorer.compute_score(references, candidates)[1])
        after = java.cpu_times()
        seconds.append(after.user + after.system - before.user - before.system)
        return scores

    relevance.pairs(sets, rows)  # compiled functions are loaded
    ours, theirs = alternate(
        {"relabel": lambda: relevance.pairs(sets, rows), "wrapper": of_wrapper}, args.repeats
    ).values()
    apart = agree("pycocoevalcap", ours.result[: args.pairs], theirs.result, 1e-12)
    rates = len(rows) / ours.cpu, args.pairs / (theirs.cpu + median(seconds))
    table.add(f"{name}, pairs per CPU second", "/s", rates[0], "pycocoevalcap", rates[1], apart=apart)


if __name__ == "__main__":
    main()
