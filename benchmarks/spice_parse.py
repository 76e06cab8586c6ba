"""SPICE's parsing: captions per second and peak memory, compared with the command line of SPICE's jar.

    python benchmarks/spice_parse.py

The jar gets every caption once, half of them as candidates and half as references, with one thread, no cache and the
heap size of pycocoevalcap. It parses and then scores, which takes a negligible part of the time. Each side runs once on
two captions, which measures its start, and once on all. CPU seconds are those of the processes, which load from other
processes does not change. CoreNLP must be installed (`relabel fetch corenlp`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import coco_test_captions, describe, machine, save, show

from relabel.core.java import find_java, java_version
from relabel.core.runtime import Runtime
from relabel.sources.spice.encode import collapsed
from relabel.sources.spice.parser import ParseFailure, SpiceParser, class_path, worker_command

COCO = 592_000
"""Distinct captions of COCO."""
JAR_HEAP = "8G"


def ours(texts: list[str], heap: str) -> dict[str, float]:
    """Parse in a separate process, so that the resources of its children are counted when it ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(texts))
        return measure([sys.executable, __file__, "--child", str(path), "--heap", heap])


def child(path: Path, heap: str) -> None:
    parser = SpiceParser(lambda: worker_command(Runtime().data, heap), 600.0)
    failed = [each for each in parser.parse(json.loads(path.read_text())) if isinstance(each, ParseFailure)]
    parser.close()
    if failed:
        raise SystemExit(f"{len(failed)} captions failed: {failed[0].reason}")


def jar(texts: list[str]) -> dict[str, float]:
    half = len(texts) // 2
    pairs = [
        {"image_id": i, "test": a, "refs": [b]} for i, (a, b) in enumerate(zip(texts[:half], texts[half:], strict=True))
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.json"
        path.write_text(json.dumps(pairs))
        jars = os.pathsep.join(map(str, class_path(Runtime().data)))
        main = ["edu.anu.spice.SpiceScorer", str(path), "-silent", "-threads", "1"]
        return measure([str(find_java()), f"-Xmx{JAR_HEAP}", "-cp", jars, *main])


def measure(command: list[str]) -> dict[str, float]:
    """Run a program; return seconds, CPU seconds and peak memory (GiB) of it and its children."""
    reader = (
        "import json, resource, subprocess, sys; code = subprocess.run(sys.argv[1:], stdout=2).returncode; "
        "use = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(json.dumps([code, use.ru_utime + use.ru_stime, use.ru_maxrss / 2**20]))"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", reader, *command], capture_output=True, text=True, check=True)
    code, cpu, peak = json.loads(done.stdout)
    if code:
        raise SystemExit(f"{command[0]} ended with {code}: {done.stderr[-1000:]}")
    return {"seconds": time.perf_counter() - started, "cpu": cpu, "peak_gib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=1000, help="an even number")
    parser.add_argument("--heap", default="2G", help="Java heap of relabel's parser")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.child, args.heap)
    texts = list(dict.fromkeys(collapsed(text) for _, _, text in coco_test_captions()))[: args.captions]
    results: dict[str, dict[str, Any]] = {}
    for name, run in {"relabel": lambda t: ours(t, args.heap), "SPICE's jar": jar}.items():
        start, complete = run(texts[:2]), run(texts)
        more = len(texts) - 2
        rates = {
            f"per_{each}": more / (complete[key] - start[key])
            for each, key in (("second", "seconds"), ("cpu_second", "cpu"))
        }
        results[name] = {"start": start, "all": complete, **rates}
    rows = [
        [
            name,
            f"{each['start']['seconds']:.1f} ({each['start']['cpu']:.1f})",
            f"{each['all']['seconds']:.1f} ({each['all']['cpu']:.1f})",
            f"{each['per_second']:.1f} ({each['per_cpu_second']:.1f})",
            f"{each['all']['peak_gib']:.2f}",
        ]
        for name, each in results.items()
    ]
    title = f"SPICE's parsing of {len(texts):,} COCO captions, one thread"
    show(title, ["", "start, s (CPU s)", "all, s (CPU s)", "captions/s (per CPU s)", "peak GiB"], rows)
    us, jars = results["relabel"], results["SPICE's jar"]
    ratios = {
        "captions a CPU second, relabel to the jar": us["per_cpu_second"] / jars["per_cpu_second"],
        "peak memory, relabel to the jar": us["all"]["peak_gib"] / jars["all"]["peak_gib"],
        "all of COCO, CPU hours": COCO / us["per_cpu_second"] / 3600,
    }
    print("\n" + "\n".join(f"{name}: {value:.2f}" for name, value in ratios.items()))
    facts = machine("JPype1", "pycocoevalcap") | {"java": java_version(find_java())}
    print(f"{describe(facts)}, Java {facts['java']}, load {facts['load']}")
    print(save("spice_parse", {"title": title, "machine": facts, "found": results, "also": ratios}))
    return None


if __name__ == "__main__":
    main()
