"""Contract: the stages of `dvc.yaml` run in the order of the data flow, with COCO's test captions at hand and no model;
they give the table, the figures of `dvc metrics show` and what training reads. A second run does nothing. After an edit
of one label, relabel repeats that label alone. The stages that `init --dvc` writes for captions of the user run outside
the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.golden.today import Folder, coco_captions

from relabel.stages.init import init
from relabel_train.lookup import open_lookup

ROOT = Path(__file__).parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
LABELS = ("same_image", "cider_lower_split", "cbow")
FETCHED = ("coco-captions", "stsb", "corenlp", "word2vec/coco", "bert_sts")
pytestmark = pytest.mark.skipif(not find_spec("dvc"), reason="dvc is not installed (the `dvc` extra)")


def dvc(folder: Path, *arguments: str) -> str:
    # DVC runs the command that is installed beside this Python.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def write_project(folder: Path) -> None:
    """Write the graph for labels without models, with placeholders of what is fetched and tuned."""
    captions = coco_captions({"test": 5000})
    words = sorted({word for one in captions for word in one["text"].lower().split()})
    values = np.random.default_rng(0).normal(size=(len(words), 8))
    lines = [f"{word} {' '.join(f'{x:.3f}' for x in row)}\n" for word, row in zip(words, values, strict=True)]
    (folder / "words.txt").write_text("".join(lines), encoding="utf-8")
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["ingest"] |= {"format": "jsonl", "path": "captions.jsonl", "expected": {}}
    params["sources"] = {label: params["sources"][label] for label in LABELS}
    params["sources"]["cbow"] |= {"vectors": "words.txt", "tokenizer": "lower_split"}
    params["judge"] |= {"resamples": 0, "draws": 0}
    params["export"]["labels"] = ["cbow"]
    Folder(folder).write(captions, params)
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    names = yaml.safe_load(text)["vars"]
    text = text.replace(names[0]["labels"], ",".join(LABELS)).replace(names[1]["served"], "cbow")
    (folder / "dvc.yaml").write_text(text.replace("faiss --label sbert", "faiss --label cbow"), encoding="utf-8")
    for name in (".dvcignore", "pipeline/relabel/versions.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "data_manifests", folder / "data_manifests")
    for name in FETCHED:
        (folder / "data" / name).mkdir(parents=True)
        (folder / "data" / name / "placeholder").write_text(name, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_graph_runs_once_and_repeats_what_changed(tmp_path: Path) -> None:
    write_project(tmp_path)
    dvc(tmp_path, "init", "--no-scm", "-q")
    dvc(tmp_path, "commit", "--force", "fetch")
    dvc(tmp_path, "repro", "ingest")
    dvc(tmp_path, "commit", "--force", "tune")
    dvc(tmp_path, "repro")
    shown = json.loads(dvc(tmp_path, "metrics", "show", "--json"))[""]["data"]
    for name in ("cxc/cxc.json", "eccv/eccv.json"):
        figures = shown[f"labels/coco/report/test/{name}"]["data"]
        assert set(figures) >= {"cider_lower_split", "cbow"}
    assert len(open_lookup(tmp_path / "labels/coco/exports/test/lookup/cbow")) == 25_010
    assert (tmp_path / "labels/coco/page/test/report.html").exists()
    assert "up to date" in dvc(tmp_path, "status")
    assert "up to date" in dvc(tmp_path, "repro")
    # DVC runs stages of all labels; relabel builds one.
    params = yaml.safe_load((tmp_path / "params.yaml").read_text(encoding="utf-8"))
    params["sources"]["cider_lower_split"]["sigma"] = 5.0
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    again = dvc(tmp_path, "repro", "encode")
    assert "encoding cider_lower_split: built" in again
    assert "encoding cbow: up to date" in again


@pytest.mark.slow
@pytest.mark.java
def test_init_writes_a_graph_for_captions_without_a_split(tmp_path: Path) -> None:
    lines = [f"{n // 2},{n} dogs run on a {word} field\n" for n, word in enumerate(["red", "green", "wide", "wet"] * 5)]
    (tmp_path / "my.csv").write_text("image_id,text\n" + "".join(lines), encoding="utf-8")
    init(tmp_path, "mine", Path("my.csv"), dvc=True)
    dvc(tmp_path, "init", "--no-scm", "-q")
    dvc(tmp_path, "repro", "-q")
    assert len(open_lookup(tmp_path / "labels/mine/exports/all/lookup/cider")) == 20
    assert (tmp_path / "labels/mine/page/all/report.html").exists()
    assert "Data and pipelines are up to date" in dvc(tmp_path, "repro")


def test_every_dependency_is_data_or_made_by_a_stage() -> None:
    made = {next(iter(out)) for stage in STAGES.values() for out in stage["outs"]}
    named = {dep for stage in STAGES.values() for dep in stage["deps"]}
    assert {name for name in named - made if not (ROOT / name).is_file() or name.endswith(".py")} == set()
