"""SPICE's parsing: captions per second and peak memory, compared with the command line of SPICE's jar.

    python benchmarks/spice_parse.py [--captions 1000]

The jar gets every caption once, half of them as candidates and half as references, with one thread, no cache and the
heap size of pycocoevalcap. It parses and then scores, which takes a negligible part of the time. Each side runs once
on two captions, which measures its start, and once on all. Memory is that of the largest process. CoreNLP must be
installed (`relabel fetch corenlp`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from harness import Program, Table, coco_captions, options

from relabel.core.java import find_java
from relabel.core.runtime import Runtime
from relabel.sources.spice.encode import collapsed
from relabel.sources.spice.parser import ParseFailure, SpiceParser, class_path, worker_command


def child(path: Path) -> None:
    """Parse in a process of its own, so that its resources are known when it ends."""
    parser = SpiceParser(lambda: worker_command(Runtime().data), 600.0)
    failed = [each for each in parser.parse(json.loads(path.read_text())) if isinstance(each, ParseFailure)]
    parser.close()
    if failed:
        raise SystemExit(f"{len(failed)} captions failed: {failed[0].reason}")


def by_relabel(texts: list[str], path: Path) -> Program:
    path.write_text(json.dumps(texts))
    return Program([sys.executable, __file__, "--child", str(path)])


def by_jar(texts: list[str], path: Path) -> Program:
    half = len(texts) // 2
    halves = enumerate(zip(texts[:half], texts[half:], strict=True))
    path.write_text(json.dumps([{"image_id": i, "test": a, "refs": [b]} for i, (a, b) in halves]))
    jars = os.pathsep.join(map(str, class_path(Runtime().data)))
    main = ["edu.anu.spice.SpiceScorer", str(path), "-silent", "-threads", "1"]
    return Program([str(find_java()), "-Xmx8G", "-cp", jars, *main])


def main() -> None:
    args = options(__doc__, captions=1000, child=Path)
    if args.child:
        child(args.child)
        return
    texts = list(dict.fromkeys(collapsed(text) for _, _, text in coco_captions()))[: args.captions]
    rates, peaks = [], []
    with tempfile.TemporaryDirectory() as folder:
        for run in (by_relabel, by_jar):
            start, complete = (run(some, Path(folder) / "texts.json") for some in (texts[:2], texts))
            rates.append((len(texts) - 2) / (complete.cpu - start.cpu))
            peaks.append(complete.largest)
    table = Table(f"SPICE's parsing of {len(texts):,} COCO captions, one thread")
    table.add("captions per CPU second", "1/s", rates[0], "SPICE's jar", rates[1])
    table.add("peak memory", "GiB", peaks[0], "SPICE's jar", peaks[1])
    table.end("spice_parse", args.save, "JPype1", "pycocoevalcap")


if __name__ == "__main__":
    main()
