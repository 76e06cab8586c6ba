"""All stages on 200 of COCO's captions, as separate processes: every kind of artefact, with several shards each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.relabel_cli.runner import one_thread

from relabel.sources.spice.parse_cache import FILE as CACHE
from relabel.store.artefact import WORK
from relabel.store.manifest import MANIFEST

PARAMS = """
ingest: {format: jsonl, path: captions.jsonl, tokenizer: none, expected: {}, rows_per_shard: 60}
tune: {cbow: {splits: [val], tokenizer: lower_split, width: 8, min_count: 1, epochs: 1}}
encode: {rows_per_shard: 60}
neighbours: {k: 20}
judge: {split: val, resamples: 5}
export: {labels: [cider]}
sources:
  same_image: {source: same_image}
  cider: {source: cider, tokenizer: lower_split}
  cbow: {source: cbow, tokenizer: lower_split, vectors: word2vec}
"""
FULL = (
    ("run",),
    ("neighbours", "--label", "cider", "--of", "images"),
    ("export", "lookup", "--label", "cbow", "--split", "val"),
    ("export", "plan", "--label", "cider", "--split", "val", "--batch-size", "16", "--sampler", "neighbour"),
)
"""Every stage, one process each. `run` fetches, ingests, tunes, encodes, judges, correlates, and makes neighbours and
lookups."""
SMALL = (("run", "--dataset", "mine", "--split", "val", "--label", "cider"),)
"""Ingest, encode, neighbours and lookup, nothing that people judged."""


@dataclass(frozen=True)
class Road:
    """Stages, their captions, and the result of an undisturbed run.

    Attributes
    ----------
    captions : str
        The input, JSONL.
    stages : tuple of tuple of str
        Commands, one process each.
    undisturbed : Path
        Folder of the undisturbed run; tests must not change it.
    seconds : dict of tuple to float
        Duration of the stages.
    """

    captions: str
    stages: tuple[tuple[str, ...], ...]
    undisturbed: Path
    seconds: dict[tuple[str, ...], float] = field(default_factory=dict)

    def lay(self, folder: Path) -> Path:
        """Make a folder with the input and the parameters."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "captions.jsonl").write_text(self.captions, encoding="utf-8")
        (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
        return folder

    def start(self, folder: Path, stage: Sequence[str], before: str = "") -> subprocess.Popen[str]:
        """Start one stage; `before` is Python code that its process runs first."""
        code = f"{before}\nfrom relabel_cli.main import main\nmain()"
        command = [sys.executable, "-c", code, *one_thread(stage)]
        env = {k: v for k, v in os.environ.items() if k not in ("RELABEL_DATA", "RELABEL_MIRROR")}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)

    def walk(self, folder: Path) -> dict[tuple[str, ...], float]:
        """Run all stages, each of which must succeed; return the seconds of each."""
        seconds = {}
        for stage in self.stages:
            started = time.monotonic()
            process = self.start(folder, stage)
            _, output = process.communicate(timeout=240)
            assert process.returncode == 0, output
            seconds[stage] = time.monotonic() - started
        return seconds

    def compare(self, folder: Path) -> None:
        """Compare a folder byte for byte with that of the undisturbed run."""
        results, expected = finals(folder), finals(self.undisturbed)
        assert sorted(results) == sorted(expected)
        assert [name for name, body in results.items() if body != expected[name]] == []
        assert [p.name for work in folder.rglob(WORK) for p in work.iterdir() if p.suffix != ".lock"] == []


def finals(folder: Path) -> dict[str, bytes]:
    """Return every final file; of manifests everything except `runtime`, which holds timings, and its digest.

    The cache of parses is left out: its bytes depend on the order of the entries.
    """
    results = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.parent.name != WORK and p.name != CACHE.name):
        body = path.read_bytes()
        if path.name == MANIFEST:
            facts = {k: v for k, v in json.loads(body).items() if k not in ("runtime", "digest")}
            body = json.dumps(facts, sort_keys=True).encode()
        results[path.relative_to(folder).as_posix()] = body
    return results
