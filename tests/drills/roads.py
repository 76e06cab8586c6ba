"""`relabel run` on 200 of COCO's captions, in a process of its own: artefacts with several shards each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from relabel.sources.spice.parse_cache import FILE as CACHE
from relabel.store.artefact import WORK
from relabel.store.manifest import MANIFEST

PARAMS = """
ingest: {format: jsonl, path: captions.jsonl, tokenizer: none, expected: {}, rows_per_shard: 60}
encode: {rows_per_shard: 60}
neighbours: {k: 20}
export: {labels: [cider]}
sources:
  cider: {source: cider, tokenizer: lower_split}
"""
COMMAND = ("run", "--dataset", "mine", "--split", "val", "--label", "cider", "--threads", "1")


@dataclass
class Road:
    """A run, its captions (JSONL), and the folder of an undisturbed run, which tests must not change."""

    captions: str
    undisturbed: Path
    seconds: float = 0.0

    def lay(self, folder: Path) -> Path:
        """Make a folder with the input and the parameters."""
        folder.mkdir(parents=True)
        (folder / "captions.jsonl").write_text(self.captions, encoding="utf-8")
        (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
        return folder

    def start(self, folder: Path, before: str = "") -> subprocess.Popen[str]:
        """Start the run; `before` is Python code that its process runs first."""
        command = [sys.executable, "-c", f"{before}\nfrom relabel_cli.main import main\nmain()", *COMMAND]
        env = {k: v for k, v in os.environ.items() if k not in ("RELABEL_DATA", "RELABEL_MIRROR")}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)

    def complete(self, folder: Path) -> None:
        """Run it to its end, which must be a success."""
        started, process = time.monotonic(), self.start(folder)
        _, output = process.communicate(timeout=240)
        assert process.returncode == 0, output
        self.seconds = time.monotonic() - started

    def finish(self, folder: Path) -> None:
        """Run it to its end; compare the folder byte for byte with that of the undisturbed run."""
        self.complete(folder)
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
            facts = {k: v for k, v in json.loads(body).items() if k not in ("provenance", "digest")}
            body = json.dumps(facts, sort_keys=True).encode()
        results[path.relative_to(folder).as_posix()] = body
    return results
