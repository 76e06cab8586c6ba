"""METEOR of images' references against captions of other images: pairs per second, compared with pycocoevalcap.

    python benchmarks/meteor.py

Both sides run the same jar on the same PTB tokens of COCO's test split. pycocoevalcap's wrapper normalises every text
of every pair and sends one pair at a time. Its start, which loads 5.3 million paraphrases, is timed separately. The
benchmark stops if scores differ by more than 1e-12. No caption is among its own references, since relabel scores such
pairs without the jar.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import coco_test_captions, describe, machine, rounds, save, show

from relabel.core.java import find_java, java_version
from relabel.core.runtime import SILENT, Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.corpus.tokenizers import tokenize
from relabel.sources.base import OpenEncoding
from relabel.sources.meteor import Meteor, MeteorParams, MeteorRelevance
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, open_artefact
from relabel.store.tasks import make_all

TOLERANCE = 1e-12


def opened(corpus: Corpus, folder: Path, processes: int) -> MeteorRelevance:
    source, rows = Meteor(MeteorParams(processes=processes)), range(len(corpus))

    def fill(work: Any) -> None:
        work.facts["rows"] = [rows.start, rows.stop]
        make_all(source.tasks(corpus, rows, 50_000, Runtime()), work, SILENT)

    artefact = ArtefactSpec(
        "encoding", "meteor", source.fingerprint_params(corpus, rows, Runtime()), {"corpus": corpus.digest}
    )
    build(folder, artefact, fill)
    return source.open(OpenEncoding(corpus, folder, open_artefact(folder, "encoding"), Runtime()))


def wrapper() -> Any:
    from pycocoevalcap.meteor.meteor import Meteor as Wrapper

    os.environ["PATH"] = str(find_java().parent) + os.pathsep + os.environ["PATH"]
    scorer = Wrapper()
    scorer.compute_score({0: ["a dog"]}, {0: ["a cat"]})  # returns once the tables are loaded
    return scorer


def by_wrapper(scorer: Any, corpus: Corpus, references: References, captions: np.ndarray) -> Callable[[], np.ndarray]:
    tokens = corpus.ptb_tokens()
    gts = {p: [tokens[r] for r in group] for p, group in enumerate(references)}
    res = {p: [tokens[c]] for p, c in enumerate(captions)}
    return lambda: np.array(scorer.compute_score(gts, res)[1])


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pairs", type=int, default=5000, help="pairs per round for the wrapper; relabel gets four times as many"
    )
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    captions = [Caption(f"coco:{c}", f"coco:{i}", "test", text) for c, i, text in coco_test_captions()]
    bare = Corpus.from_captions(captions)
    corpus = bare.with_tokens(tokenize(bare.texts, Runtime()))
    with tempfile.TemporaryDirectory() as scratch:
        run(args, corpus, Path(scratch) / "meteor")


def run(args: argparse.Namespace, corpus: Corpus, folder: Path) -> None:
    encode_seconds, one = seconds_of(lambda: opened(corpus, folder, 1))
    two = replace(one, scorer=opened(corpus, folder, 2).scorer)
    start_seconds, scorer = seconds_of(wrapper)
    first = References.single(np.zeros(1, np.int32))
    restart_seconds, _ = seconds_of(lambda: one.pairs(first, np.array([99], np.int32)))

    draw = np.random.default_rng(0)
    count = 4 * args.pairs
    images, rows = draw.integers(0, len(corpus.image_ids), count), draw.integers(0, len(corpus), count, dtype=np.int32)
    rows = np.where(corpus.image[rows] == images, (rows + 10) % len(corpus), rows).astype(np.int32)
    sets = corpus.references(images)
    sample = np.arange(args.pairs)
    works: dict[str, Callable[[], np.ndarray]] = {
        "relabel, 2 processes": lambda: two.pairs(sets, rows),
        "relabel, 1 process": lambda: one.pairs(sets, rows),
        "pycocoevalcap": by_wrapper(scorer, corpus, sets.take(sample), rows[: args.pairs]),
    }
    pairs = {"relabel, 2 processes": count, "relabel, 1 process": count, "pycocoevalcap": args.pairs}
    timings = rounds(works, args.repeats)
    expected = timings["pycocoevalcap"][1]
    worst = max(float(np.abs(timings[name][1][sample] - expected).max()) for name in works)
    if not worst <= TOLERANCE:
        raise SystemExit(f"pycocoevalcap and relabel differ by {worst:.3g}")
    for relevance in (one, two):
        relevance.close()

    seconds = {name: statistics.median(times) for name, (times, _) in timings.items()}
    rates = {name: pairs[name] / seconds[name] for name in works}
    ratios = {name: rate / rates["pycocoevalcap"] for name, rate in rates.items()}
    title = "METEOR, five references per pair, COCO's test split"
    table = [
        [
            name,
            f"{pairs[name]:,}",
            f"{seconds[name]:.2f}",
            f"{timings[name][0][0]:.2f}",
            f"{rates[name]:,.0f}",
            f"{ratios[name]:.1f}",
        ]
        for name in works
    ]
    show(title, ["", "pairs", "seconds", "first round", "pairs/s", "times pycocoevalcap"], table)
    extra = {
        "encode 25,000 captions, s (once)": encode_seconds,
        "start of a relabel process, s": restart_seconds,
        "start of pycocoevalcap's process, s": start_seconds,
        "largest difference": worst,
    }
    print("\n" + "\n".join(f"{name}: {value:.3g}" for name, value in extra.items()))
    facts = machine("numpy", "pycocoevalcap") | {"java": java_version(find_java())}
    print(f"{describe(facts)}, Java {facts['java']}\nmedians of {args.repeats} rounds")
    lines = [
        {
            "name": n,
            "pairs": pairs[n],
            "seconds": seconds[n],
            "all_seconds": timings[n][0],
            "pairs_per_second": rates[n],
            "x_pycocoevalcap": ratios[n],
        }
        for n in works
    ]
    print(save("meteor", {"title": title, "rounds": args.repeats, "machine": facts, "rows": lines, "also": extra}))


if __name__ == "__main__":
    main()
