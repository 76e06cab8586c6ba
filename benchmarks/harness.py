"""What benchmarks share: options, COCO's test captions, clocks, peak memory, and one table of relabel and its peers."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import relabel
from relabel.core.runtime import Runtime
from relabel.sources.relevance import Relevance

RESULTS = Path(__file__).parent / "results"
MIRROR = Path(os.environ.get("RELABEL_MIRROR", "mirror"))
CORES = len(os.sched_getaffinity(0))
BUSY = round(psutil.cpu_percent(0.5) * (psutil.cpu_count() or 1) / 100, 2)
"""Cores that other programs use while this one starts. Figures of a busy machine are not comparable with others."""
_FLAGS = {"avx2": "avx2", "avx512f": "avx512", "avx512_vnni": "vnni", "avx_vnni": "vnni", "avx512_bf16": "bf16"}
_FLAGS |= {"amx_tile": "amx"}
"""Instructions that decide how fast a processor multiplies, by their names in /proc/cpuinfo."""


def options(doc: str | None, **more: Any) -> argparse.Namespace:
    """Parse the command line. A keyword is an option with its default; a list takes several values, a type has none."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"repeats": 3, "threads": CORES, "peer": Path, "save": False, **more}.items():
        settings: dict[str, Any] = {"type": type(default), "default": default}
        if default is False:
            settings = {"action": "store_true"}
        elif isinstance(default, type):
            settings = {"type": default}
        elif isinstance(default, list):
            settings = {"type": type(default[0]), "default": default, "nargs": "*"}
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    return parser.parse_args()


def processor() -> dict[str, Any]:
    """Return maker, family, model and instructions of the processor, and the class that these put it into."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
    info = {name.strip(): value.strip() for name, _, value in lines}
    has = info.get("flags", "").split()
    flags = list(dict.fromkeys(flag for name, flag in _FLAGS.items() if name in has))
    maker = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(info.get("vendor_id", ""), platform.machine())
    names = {"cpu": "model name", "family": "cpu family", "model": "model"}
    facts = {key: info.get(name, "") for key, name in names.items()}
    return facts | {"flags": flags, "class": "-".join([maker, *flags])}


def coco_captions(count: int = 25_000) -> list[tuple[str, str, str]]:
    """Return COCO's first test captions as (caption id, image id, text), from inside two packages, without a download.

    Ids: eccv_caption. Texts: the annotations in the SPICE jar of pycocoevalcap.
    """
    ids = set(np.load(inside("eccv_caption", "data/coco_test_ids.npy")).tolist())
    with zipfile.ZipFile(inside("pycocoevalcap", "spice/spice-1.0.jar")) as jar:
        notes = json.loads(jar.read("coco/annotations/captions_val2014.json"))["annotations"]
    notes = sorted((note["image_id"], note["id"], note["caption"]) for note in notes if note["id"] in ids)
    return [(str(caption), str(image), text) for image, caption, text in notes[:count]]


def inside(package: str, path: str) -> Path:
    """Return the path of a file inside an installed package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / path


def encoded(
    folder: Path, items: Iterable[tuple[str, str, str]], label: str, tokenizer: str, threads: int, **params: Any
) -> Relevance:
    """Encode (caption id, image id, text) as users do, and open the label. Full stops go, which `lower_split` keeps."""
    names, images, texts = zip(*items, strict=True)
    if tokenizer == "lower_split":
        texts = [text.rstrip(" .") for text in texts]
    table = pa.table({"caption_id": names, "image_id": images, "text": texts})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "captions.parquet")
    runtime, dataset = Runtime(threads=threads), folder / "benchmark"
    columns = {"caption_id_column": "caption_id", "in_split": "test"}
    relabel.ingest(dataset, folder / "captions.parquet", runtime=runtime, **columns)
    settings = {f"sources.{label}.{name}": value for name, value in params.items()}
    if tokenizer == "lower_split":
        settings[f"sources.{label}.tokenizer"] = tokenizer
    return relabel.encode(dataset, label, settings=settings, runtime=runtime).relevance


def random_vectors(folder: Path, count: int, width: int, kind: str, **params: Any) -> Path:
    """Export random unit vectors of captions, one per image, as the pipeline exports a label; return the folder.

    The caption of row i has the key `i` in nine digits.
    """
    folder.mkdir()
    vectors = np.random.default_rng(0).standard_normal((count, width), np.float32)
    np.save(folder / "vectors.npy", vectors)
    names = [f"{i:09d}" for i in range(count)]
    (folder / "vectors.ids.txt").write_text("\n".join(names))
    settings = {"sources.precomputed.captions": str(folder / "vectors.npy")}
    every = zip(names, names, ["a dog on a surfboard"] * count, strict=True)
    encoded(folder, every, "precomputed", "none", CORES, captions=str(folder / "vectors.npy"))
    if kind == "wds":  # made from a lookup
        relabel.export_label(folder / "benchmark", "lookup", "precomputed", "test", settings=settings)
    return relabel.export_label(folder / "benchmark", kind, "precomputed", "test", settings=settings, **params)


class Cost(NamedTuple):
    """Wall seconds and CPU seconds of all threads, and the result."""

    wall: float
    cpu: float
    result: Any


def clock(work: Callable[[], Any]) -> Cost:
    """Run some work once."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, result)


def alternate(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Cost]:
    """Run every work once per round, so that load from other processes hits each; return medians and last results."""
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            costs[name].append(clock(work))
    return {name: _median(each) for name, each in costs.items()}


def _median(costs: Sequence[Cost]) -> Cost:
    wall, cpu, _ = zip(*costs, strict=True)
    return Cost(statistics.median(wall), statistics.median(cpu), costs[-1].result)


def agree(name: str, ours: Any, theirs: Any, tolerance: float) -> float:
    """Return the largest difference; stop if it exceeds the tolerance."""
    worst = float(np.abs(np.asarray(ours) - np.asarray(theirs)).max(initial=0))
    if not worst <= tolerance:
        raise SystemExit(f"{name} and relabel differ by {worst:.3g}")
    return worst


def peak_gib() -> float:
    """Return the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Program(threading.Thread):
    """A program that has ended: its output, seconds, CPU seconds and peak memory, sampled four times per second.

    `resident` and `anonymous` (without pages of files, which the system can reclaim) are sums over the program and its
    children; `largest` is that of one process. All in GiB.
    """

    def __init__(self, command: Sequence[str], folder: Path | None = None) -> None:
        super().__init__(daemon=True)
        self.resident = self.anonymous = self.largest = 0.0
        before, started = _children_cpu(), time.perf_counter()
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as self.process:
            self.start()
            self.output = self.process.communicate()[0]
        self.wall, self.cpu = time.perf_counter() - started, _children_cpu() - before
        if self.process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {self.process.returncode}")

    def run(self) -> None:
        """Sample the memory until the program has ended."""
        try:
            root = psutil.Process(self.process.pid)
            while root.is_running():
                infos = [process.memory_info() for process in (root, *root.children(recursive=True))]
                self.resident = max(self.resident, sum(info.rss for info in infos) / 2**30)
                self.anonymous = max(self.anonymous, sum(info.rss - info.shared for info in infos) / 2**30)
                self.largest = max(self.largest, *(info.rss / 2**30 for info in infos))
                time.sleep(0.25)
        except psutil.Error:
            return


def _children_cpu() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def run_relabel(folder: Path, *arguments: str) -> Program:
    """Run the command `relabel` in a folder."""
    return Program([sys.executable, "-c", "from relabel_cli.main import main; main()", *arguments], folder)


class Table:
    """Rows of a task, relabel's figure, a peer's, and the ratio: how many times better relabel is."""

    def __init__(self, title: str) -> None:
        self.title, self.rows = title, list[dict[str, Any]]()

    def add(
        self, task: str, unit: str, ours: float, peer: str = "", theirs: float | None = None, **more: float | str
    ) -> None:
        """Add a row; a figure per second is better if larger, any other one if smaller."""
        row: dict[str, Any] = {"task": task, "unit": unit, "relabel": ours, "peer": peer, "figure": theirs}
        if theirs is not None:
            row["ratio"] = ours / theirs if unit.endswith("/s") else theirs / ours
        self.rows.append(row | more)

    def end(self, name: str, save: bool, *libraries: str) -> None:
        """Print the table and the facts that timings depend on; with `save`, write results/CLASS/NAME.json."""
        heads = list(dict.fromkeys(head for row in self.rows for head in row))
        cells = [heads, *([_cell(row.get(head)) for head in heads] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        print(f"\n{self.title}")
        for line in cells:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        facts = {
            **processor(),
            "cores": CORES,
            "busy": BUSY,
            "OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "not set"),
            "load": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
            "libraries": {name: metadata.version(name) for name in libraries},
        }
        print(json.dumps(facts))
        if save:
            body = {"title": self.title, "machine": facts, "rows": self.rows}
            path = RESULTS / str(facts["class"]) / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def _cell(value: Any) -> str:
    if not isinstance(value, float | int):
        return value or ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
