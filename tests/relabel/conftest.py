"""A stand-in for Java that fails on request, and a project with an artefact of every kind."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.relabel.published import write_captions

PARAMS = """
ingest: {format: jsonl, path: captions.jsonl, expected: {}, rows_per_shard: 60}
tune: {cbow: {splits: [val], tokenizer: lower_split, width: 8, min_count: 1, epochs: 1}}
encode: {rows_per_shard: 60}
neighbours: {k: 20}
judge: {split: val, resamples: 5, draws: 2}
export: {labels: [cider], batches: {batch_size: 16, sampler: neighbour}}
sources:
  same_image: {source: same_image}
  cider: {source: cider, tokenizer: lower_split}
  cbow: {source: cbow, tokenizer: lower_split, vectors: word2vec}
"""


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Install a `java` through $RELABEL_JAVA that answers `-version` and otherwise runs the given Python code."""

    def install(code: str) -> Path:
        folder = tmp_path / "fake-java"
        folder.mkdir(exist_ok=True)
        version = "if '-version' in sys.argv: sys.exit(print('openjdk version \"17.0.0\"', file=sys.stderr))"
        main = folder / "main.py"
        main.write_text(f"import os, sys, time\n{version}\n{textwrap.dedent(code)}", encoding="utf-8")
        java = folder / "java"
        java.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S -E {shlex.quote(str(main))} "$@"\n')
        java.chmod(0o755)
        monkeypatch.setenv("RELABEL_JAVA", str(java))
        return java

    return install


@pytest.fixture(scope="session")
def all_artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an artefact of every kind and fetched files; tests must not change it."""
    from relabel import datasets, stages
    from relabel.config import load_config
    from relabel.core.runtime import Runtime
    from relabel.stages.run import run

    folder = tmp_path_factory.mktemp("made")
    (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
    write_captions(folder / "captions.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("RELABEL_MIRROR", raising=False)
        project = stages.Project(load_config(Path("params.yaml")), Runtime(data=Path("data"), threads=1))
        assert run(project).problems == []
        stages.export_lookup(project, "cbow", "val").run()
        stages.export_batches(project, "cider", "val", "batches").run()
        datasets.fetch("eccv", Path("data"))
    return folder
