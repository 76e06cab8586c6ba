"""SPICE without Java: pairs per second from tuples, and the neighbours of all of COCO's test images and captions.

    python benchmarks/spice.py --mirror DIR [--jar-seconds 14]

The mirror holds the tuples that SPICE's jar extracts from the 25,000 test captions, and the jar's scores of the 44,833
pairs judged by CxC. relabel's scores must equal them, except for five pairs of one image for which the jar's own
results vary. The jar is not run, as it parses before it scores; `--jar-seconds` is the time that scoring these pairs
takes it, start included. Times are CPU seconds of one thread, which load from other processes does not change.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from common import describe, machine, save, show

from relabel.core.runtime import SILENT, Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.sources.base import OpenEncoding
from relabel.sources.finder import Search
from relabel.sources.spice import Spice, SpiceParams
from relabel.sources.spice.encode import SceneGraphTasks, collapsed
from relabel.sources.spice.relevance import SceneGraphRelevance
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel.store.tasks import make_all

IMAGE_OF_CHANCE = 58472
K = 100


class RecordedTuples:
    """Parser that returns recorded tuples."""

    def __init__(self, tuples: dict[str, Any]) -> None:
        self.tuples = tuples

    def parse(self, texts: Sequence[str], advance: Callable[[int], None]) -> list[Any]:
        advance(len(texts))
        return [self.tuples[text] for text in texts]


def opener(mirror: Path, folder: Path) -> Callable[[], SceneGraphRelevance]:
    """Encode the captions; return a function that opens the encoding."""
    body = json.loads(gzip.decompress((mirror / "coco/dataset_coco.json.gz").read_bytes()))
    captions = [
        Caption(f"coco:{s['sentid']}", f"coco:{image['cocoid']}", "test", s["raw"])
        for image in body["images"]
        for s in image["sentences"]
    ]
    corpus = Corpus.from_captions(captions)
    table = pq.read_table(mirror / "spice/coco_test_tuples.parquet", columns=["caption_id", "tuples_raw"])
    tuples = dict(zip(table["caption_id"].to_pylist(), table["tuples_raw"].to_pylist(), strict=True))
    tuples_of_text = {collapsed(t): tuples[int(n[5:])] for n, t in zip(corpus.caption_ids, corpus.texts, strict=True)}
    source, rows, runtime = Spice(SpiceParams()), range(len(corpus)), Runtime(threads=1)

    def fill(work: Any) -> None:
        work.facts["rows"] = [0, len(corpus)]
        make_all(
            SceneGraphTasks(corpus, rows, 50_000, lambda: corpus.texts, runtime, parser=RecordedTuples(tuples_of_text)),
            work,
            SILENT,
        )

    artefact = ArtefactSpec(
        "encoding", "spice", source.fingerprint_params(corpus, rows, runtime), {"corpus": corpus.digest}
    )
    manifest, _ = build(folder, artefact, fill)
    return lambda: source.open(OpenEncoding(corpus, folder, manifest, runtime))


def cpu(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median CPU seconds, after a first call that compiles, and the result."""
    result, seconds = work(), []
    for _ in range(repeats):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--jar-seconds", type=float, default=14.0)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        opened = opener(args.mirror, Path(folder) / "encoding")
        opening, relevance = cpu(opened, args.repeats)
    table = pq.read_table(args.mirror / "spice/cxc_sits_test_scores.parquet")
    image, theirs = table["image_id"].to_numpy(), table["raw_all_f"].to_numpy()
    corpus = relevance.corpus
    number = {name: i for i, name in enumerate(corpus.image_ids)}
    row = {name: i for i, name in enumerate(corpus.caption_ids)}
    references = corpus.references(np.array([number[f"coco:{i}"] for i in image.tolist()]))
    captions = np.array([row[f"coco:{c}"] for c in table["caption_id"].to_pylist()], np.int32)
    pairs, scores = cpu(lambda: relevance.pairs(references, captions), args.repeats)
    wrong = (np.abs(scores - theirs) > 1e-9) & (image != IMAGE_OF_CHANCE)
    if wrong.any():
        raise SystemExit(f"{int(wrong.sum())} pairs differ from the jar's")
    every = np.arange(len(corpus), dtype=np.int32)
    batch = np.random.default_rng(0).integers(0, len(corpus), 128).astype(np.int32)
    sets = corpus.references(corpus.image[batch])
    block, _ = cpu(lambda: relevance.block(sets, batch), 50)
    images = corpus.references(range(len(corpus.image_ids)))
    searches = {
        "images": Search(images, np.full(len(images), -1, np.int32), every, K),
        "captions": Search(References.single(every), every, every, K),
    }
    search_seconds = {}
    for name, search in searches.items():
        finder = relevance.finder(search, "refs", Runtime(threads=1))
        finder.find(None, range(1), lambda _: None)  # type: ignore[arg-type]
        started = time.process_time()
        finder.find(None, range(len(search.queries)), lambda _: None)  # type: ignore[arg-type]
        search_seconds[name] = time.process_time() - started
    facts = machine("numpy", "numba")
    print(describe(facts))
    total = opening + pairs
    rows = [
        [
            "the jar, as given (start included)",
            f"{args.jar_seconds:.2f}",
            f"{len(captions) / args.jar_seconds:,.0f}",
            "",
        ],
        [
            "relabel, opening included",
            f"{total:.3f}",
            f"{len(captions) / total:,.0f}",
            f"{args.jar_seconds / total:.0f}",
        ],
        ["relabel", f"{pairs:.3f}", f"{len(captions) / pairs:,.0f}", f"{args.jar_seconds / pairs:.0f}"],
    ]
    show(f"SPICE of {len(captions):,} pairs", ["", "CPU s", "pairs/s", "times"], rows)
    print(f"\nblock 128 x 128: {block * 1e3:.2f} ms")
    for name, seconds in search_seconds.items():
        cells = len(searches[name].queries) * len(every)
        print(f"top {K} of {name}, {cells / 1e6:,.0f} million pairs: {seconds:.2f} CPU s")
    body = {"machine": facts, "jar_seconds_told": args.jar_seconds, "opening_s": opening, "pairs_s": pairs}
    save("spice", body | {"pairs": len(captions), "block_128_ms": block * 1e3, "neighbours_s": search_seconds})


if __name__ == "__main__":
    main()
