"""Contract: corpus, encodings and neighbours open in pandas and in Hugging Face's datasets, offline and without
relabel, with the values that relabel reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel import stages
from relabel.stages import Project
from relabel_train.lookup import open_lookup

ALONE = "import sys\nsys.modules.update(dict.fromkeys(('relabel', 'relabel_train', 'relabel_cli')))\n"  # blocks imports
PANDAS = """
import json, pandas as pd
from pathlib import Path
def read(folder): return pd.concat(map(pd.read_parquet, sorted(Path(folder).glob("part-*.parquet"))), ignore_index=True)
corpus, cbow, cider, near = map(read, sys.argv[1:])
found = cbow.merge(corpus[["row", "caption_id", "image_id"]], on="row")
best = near.explode(["neighbours", "scores", "same_image"])
row = best.iloc[5]
print(json.dumps({
    "ids": corpus["caption_id"].tolist(), "rows": len(near), "columns": list(near.columns),
    "joined": found["caption_id"].tolist(), "vector": [float(x) for x in found["vector"].iloc[7]],
    "grams": [len(x) for x in cider["ngrams"]], "entries": len(best),
    "near": [int(row["row"]), int(row["neighbours"]), float(row["scores"]), bool(row["same_image"])],
}))
"""
DATASETS = """
import json, datasets
datasets.disable_progress_bars()
cache, folders = sys.argv[1], sys.argv[2:]
kind = {"cache_dir": cache, "split": "train"}
parts = (folder + "/part-*.parquet" for folder in folders)
corpus, cbow, cider, near = (datasets.load_dataset("parquet", data_files=each, **kind) for each in parts)
row = near[0]
print(json.dumps({
    "ids": corpus["caption_id"][:], "rows": len(near), "columns": near.column_names,
    "joined": [corpus[i]["caption_id"] for i in cbow["row"]], "vector": cbow[7]["vector"],
    "grams": [len(x) for x in cider["ngrams"]], "entries": sum(map(len, near["neighbours"])),
    "near": [row["row"], row["neighbours"][5], row["scores"][5], row["same_image"][5]],
}))
"""


def folders(project: Project) -> list[str]:
    folder = project.folder
    where = [folder("corpus"), folder("encodings", "all", "cbow"), folder("encodings", "all", "cider")]
    return [str(p) for p in (*where, folder("neighbours", "all", "captions", "cbow"))]


def check(found: dict[str, Any], project: Project) -> None:
    corpus, lookup = project.corpus, open_lookup(project.folder("exports", "all", "lookup", "cbow"))
    rows, scores, same = (a[0, 5].item() for a in lookup.neighbours([0]))
    assert found["ids"] == found["joined"] == corpus.caption_ids
    assert found["columns"] == ["row", "neighbours", "scores", "same_image"]
    assert (found["rows"], found["entries"]) == (len(corpus), 8 * len(corpus))
    assert found["near"] == [0, rows, scores, same]
    relevance: Any = stages.open_label(project, "cbow", "all")
    np.testing.assert_array_equal(np.float32(found["vector"]), relevance.vectors[7])
    features = stages.open_label(project, "cider", "all").features  # type: ignore[attr-defined]
    assert found["grams"] == np.diff(features.indptr).tolist()


def run(code: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-c", ALONE + code, *arguments]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PATH": "", "HOME": arguments[0]}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=offline)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_pandas(small_project: Project) -> None:
    pytest.importorskip("pandas")
    check(run(PANDAS, *folders(small_project)), small_project)


def test_datasets(small_project: Project, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    check(run(DATASETS, str(tmp_path), *folders(small_project)), small_project)
