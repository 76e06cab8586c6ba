"""A corpus of a hundred captions, its lookup and its files in SCAN's layout."""

from __future__ import annotations

from pathlib import Path

from relabel import stages
from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.stages import Project


def export_scan(folder: Path) -> tuple[Path, Path]:
    """Make the export `scan` and the lookup of a train split of 20 images; return their folders."""
    words = [f"word{i}" for i in range(8)]
    rows = [f"c{i}-{j},{i},train,{words[i % 8]} {words[(i + j) % 8]}" for i in range(20) for j in range(5)]
    (folder / "captions.csv").write_text("\n".join(["caption_id,image_id,split,text", *rows]) + "\n")
    vectors = [f"{word} {i % 3} {i % 5} {1 + i % 2}" for i, word in enumerate(words)]
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n")
    settings = ["ingest.dataset=mine", f"ingest.path={folder / 'captions.csv'}"]
    settings += [f"sources={{cbow: {{source: cbow, vectors: {folder / 'vectors.txt'}, tokenizer: lower_split}}}}"]
    project = Project(load_config(None, settings), Runtime(threads=1), folder / "labels")
    stages.ingest(project).run()
    stages.encode(project, "cbow", "train").run()
    lookup, scan = stages.export_lookup(project, "cbow", "train"), stages.export(project, "scan", "cbow", "train")
    lookup.run()
    scan.run()
    return scan.out, lookup.out
