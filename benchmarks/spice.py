"""SPICE without Java: pairs per second from tuples, and the neighbours of all of COCO's test images.

    python benchmarks/spice.py [--jar-seconds 14]

The folder of $RELABEL_MIRROR holds the tuples that SPICE's jar extracts from the 25,000 test captions, and the jar's
scores of the 44,833 pairs judged by CxC. relabel's scores must equal them, except for five pairs of one image for
which the jar's own results vary. The jar is not run, as it parses before it scores; `--jar-seconds` is the time that
scoring these pairs takes it, start included. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
from harness import MIRROR, Table, agree, alternate, clock, coco_captions, encoded, options

from relabel.core.runtime import Runtime
from relabel.sources.finder import Search
from relabel.sources.spice.encode import collapsed

IMAGE_OF_CHANCE = 58472
K = 100


def with_tuples(folder: Path) -> Any:
    """Encode COCO's captions with the recorded tuples instead of a parser."""
    captions = coco_captions()
    table = pq.read_table(MIRROR / "spice/coco_test_tuples.parquet", columns=["caption_id", "tuples_raw"])
    tuples = dict(zip(table["caption_id"].to_pylist(), table["tuples_raw"].to_pylist(), strict=True))
    of_text = {collapsed(text): tuples[int(name)] for name, _, text in captions}
    parser = SimpleNamespace(parse=lambda texts, _: [of_text[text] for text in texts])
    with mock.patch("relabel.sources.spice.cached_parser", return_value=parser):
        return encoded(folder, captions, "spice", "none", 1)


def main() -> None:
    args = options(__doc__, jar_seconds=14.0)
    with tempfile.TemporaryDirectory() as folder:
        relevance = with_tuples(Path(folder))
    table = pq.read_table(MIRROR / "spice/cxc_sits_test_scores.parquet")
    image, theirs = table["image_id"].to_numpy(), table["raw_all_f"].to_numpy()
    corpus = relevance.corpus
    prefix = corpus.image_ids[0].rpartition(":")[0]
    number = {name: i for i, name in enumerate(corpus.image_ids)}
    row = {name: i for i, name in enumerate(corpus.caption_ids)}
    references = corpus.references(np.array([number[f"{prefix}:{i}"] for i in image.tolist()]))
    captions = np.array([row[f"{prefix}:{c}"] for c in table["caption_id"].to_pylist()], np.int32)

    for _ in range(2):  # the first call compiles
        pairs = alternate({"": lambda: relevance.pairs(references, captions)}, args.repeats)[""]
    known = image != IMAGE_OF_CHANCE
    agree("the jar", pairs.result[known], theirs[known], 1e-9)
    out = Table(f"SPICE of {len(captions):,} pairs, tuples in memory")
    out.add("scores", "CPU s", pairs.cpu, "the jar, as given", args.jar_seconds)
    every = np.arange(len(corpus), dtype=np.int32)
    images = corpus.references(range(len(corpus.image_ids)))
    search = Search(images, np.full(len(images), -1, np.int32), every, K)
    finder = relevance.finder(search, "set", Runtime(threads=1))
    finder.find(None, range(1), lambda _: None)
    found = clock(lambda: finder.find(None, range(len(images)), lambda _: None))
    out.add(f"top {K} of {len(images):,} images", "CPU s", found.cpu)
    out.end("spice", args.save, "numpy", "numba")


if __name__ == "__main__":
    main()
