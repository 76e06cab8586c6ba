"""Contract: the stages of `dvc.yaml` run in the order of the data flow, with small, real models of every source; their
figures, neighbours, lookups and precomputed batches are those of single commands. Where GloVe cannot be fetched, the
graph goes on without it and names what is left out; when it is there, the graph adds that. A second run does nothing.

Contract: on COCO's complete test split, the graph gives the figures of `dvc metrics show`, of ECCV Caption as well.
After an edit of one label, relabel repeats that label alone. The stages that `init --dvc` writes for captions of the
user run outside the checkout.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from tests.golden.today import Folder, coco_captions
from tests.relabel.sources.sbert.tiny_encoder import tiny_encoder

from relabel.core.runtime import default_data
from relabel.stages.init import init
from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches

ROOT = Path(__file__).parents[2]
GRAPH = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
STAGES = GRAPH["stages"]
VARS: dict[str, str] = {name: value for one in GRAPH["vars"] for name, value in one.items()}
LABELS = ("same_image", "cider_lower_split", "word2vec")
FETCHED = ("coco-captions", "stsb", "corenlp", "glove", "word2vec/coco", "bert_sts")
BEHIND_GLOVE = {"cbow", "bert_sts"}
pytestmark = pytest.mark.skipif(not find_spec("dvc"), reason="dvc is not installed (the `dvc` extra)")


def program(folder: Path, *command: str, **variables: str) -> str:
    # DVC runs the command that is installed beside this Python.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **variables}
    environment.pop("RELABEL_DATA", None)
    done = subprocess.run([*command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def dvc(folder: Path, *arguments: str, **variables: str) -> str:
    return program(folder, sys.executable, "-m", "dvc", *arguments, **variables)


def write_graph(folder: Path, captions: list[dict[str, str]], params: dict[str, Any], **variables: str) -> None:
    """Write captions, parameters and the graph with other values of its variables."""
    params["ingest"] |= {"format": "jsonl", "path": "captions.jsonl", "expected": {}}
    params["judge"] |= {"resamples": 0}
    Folder(folder).write(captions, params)
    body = {**GRAPH, "vars": [{name: value} for name, value in (VARS | variables).items()]}
    (folder / "dvc.yaml").write_text(yaml.safe_dump(body, sort_keys=False), encoding="utf-8")
    for name in (".dvcignore", "pipeline/relabel/versions.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "data_manifests", folder / "data_manifests")
    dvc(folder, "init", "--no-scm", "-q")


def without(names: str, left_out: set[str]) -> str:
    return ",".join(name for name in names.split(",") if name not in left_out)


def write_small_project(folder: Path) -> dict[str, str]:
    """Write the graph for 500 images of val and 60 of train, and models that train in seconds; return its lists.

    ECCV Caption, which ranks the complete test split, is left out, and SPICE if CoreNLP has not been fetched. Parses
    that SPICE has kept are used.
    """
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["tune"]["word2vec"] |= {"width": 16, "epochs": 1, "min_count": 1}
    shutil.copytree(tiny_encoder(folder.parent / "encoder", layers=2), folder / "tiny")
    params["tune"]["bert_sts"] |= {"base": "tiny", "epochs": 1}
    params["neighbours"]["k"] = 10
    params["export"]["batches"] = {"batch_size": 32, "batches_per_epoch": 2}
    left_out = set() if (default_data() / "corenlp").exists() else {"spice"}
    if (kept := default_data() / "spice").exists():
        shutil.copytree(kept, folder / "data" / "spice")
    lists = {name: without(VARS[name], left_out) for name in ("labels", "lookups", "vectors", "batches", "served")}
    captions = coco_captions({"val": 500, "train": 60})
    write_graph(folder, captions, params, **lists, splits="val", judged="val")
    text = (folder / "dvc.yaml").read_text(encoding="utf-8")
    changes = {" --eccv": "", "labels/coco/report/test/": "labels/coco/report/val/"}
    changes |= {" corenlp": ""} if left_out else {}
    for before, after in changes.items():
        text = text.replace(before, after)
    body = yaml.safe_load(text)
    body["metrics"] = body["metrics"][:1]
    for stage in body["stages"].values():
        stage["deps"] = [dep for dep in stage["deps"] if "rankings" not in dep and not (left_out and "corenlp" in dep)]
        stage["outs"] = [
            out for out in stage["outs"] if "rankings" not in str(out) and not (left_out and "corenlp" in str(out))
        ]
    (folder / "dvc.yaml").write_text(yaml.safe_dump(body, sort_keys=False), encoding="utf-8")
    return lists


def figures(folder: Path, label: str) -> dict[str, float]:
    """Return a label's figures on CxC, without intervals, by task, subset and name; NaN where one is undefined."""
    file = folder / "labels/coco/figures/val" / label / "figures.json"
    records: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["records"]
    names = ("n", "missing", "pearson", "spearman")
    values = {f"{one['task']} {one['subset']} {name}": one.get(name) for one in records for name in names}
    return {key: math.nan if value is None else float(value) for key, value in values.items()}


def nearest(folder: Path, label: str, split: str = "val") -> Any:
    (file,) = (folder / "labels/coco/neighbours" / split / "captions" / label).glob("part-*.parquet")
    table = pq.read_table(file)
    return table["row"].to_pylist(), table["neighbours"].to_pylist()


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(3600)
def test_the_graph_gives_what_single_commands_give(tmp_path: Path, mirror: Path) -> None:
    pytest.importorskip("gensim")
    folder, elsewhere = tmp_path / "graph", tmp_path / "mirror"
    folder.mkdir()
    elsewhere.mkdir()
    for path in (*mirror.iterdir(), default_data() / "corenlp"):
        if path.exists() and path.name != "vectors":
            (elsewhere / path.name).symlink_to(path.absolute())
    lists = {name: value.split(",") for name, value in write_small_project(folder).items()}

    # Without GloVe, and without a network that it could come from.
    proxy = dict.fromkeys(("https_proxy", "http_proxy"), "http://127.0.0.1:9")
    printed = dvc(folder, "repro", RELABEL_MIRROR=str(elsewhere), **proxy)
    assert printed.count("going on without GloVe: cbow is left out, and bert_sts") == 2  # the command, and its output
    for label in BEHIND_GLOVE:
        assert f"{label} is left out: data/glove: glove not found. Get it with `relabel fetch glove`" in printed
    report = folder / "labels/coco/report/val/cxc/cxc.json"
    judged = {*lists["labels"]} - {"same_image"}  # which has no figure over pairs of other images
    assert set(json.loads(report.read_text(encoding="utf-8"))) == judged - BEHIND_GLOVE

    # With it, the graph adds what was left out, and nothing else.
    program(folder, "relabel", "fetch", "glove", RELABEL_MIRROR=str(mirror))
    printed = dvc(folder, "repro", RELABEL_MIRROR=str(mirror))
    assert "encoding cbow: built" in printed
    assert "encoding sbert: up to date" in printed
    assert not any(f"{label} is left out:" in printed for label in BEHIND_GLOVE)
    assert set(json.loads(report.read_text(encoding="utf-8"))) == judged
    assert "up to date" in dvc(folder, "status")

    # Single commands in another folder, with the data and models of the graph.
    single, exports = tmp_path / "single", "labels/coco/exports/val"
    single.mkdir()
    for name in ("params.yaml", "captions.jsonl", "data", "tiny"):
        (single / name).symlink_to(folder / name)

    def relabel(*words: str) -> None:
        program(single, "relabel", *words, RELABEL_MIRROR=str(mirror))

    relabel("ingest")
    for label in lists["labels"]:
        relabel("correlate", "--cxc", "--split", "val", "--label", label)
        theirs, ours = figures(single, label), figures(folder, label)
        assert ours == pytest.approx(theirs, rel=1e-6, nan_ok=True)
        assert ours["sits all n"] == 2707
        assert not math.isnan(ours["sits all pearson"])
    refined = VARS["refined"].split()
    for label in (*lists["lookups"], "refined"):
        more = refined if label == "refined" else []
        relabel("encode", "--split", "val", "--label", label, *more)
        relabel("neighbours", "--candidates", "val", "--label", label, *more)
        assert nearest(folder, label) == nearest(single, label)
    for label in lists["lookups"]:
        relabel("export", "lookup", "--split", "val", "--label", label)
        opened = [open_lookup(path / exports / "lookup" / label) for path in (folder, single)]
        blocks = [lookup.block(lookup.rows.start + np.arange(256)) for lookup in opened]
        np.testing.assert_allclose(blocks[0], blocks[1], rtol=1e-6)
        assert len(opened[0]) == len(opened[1]) == 2500
    for label in lists["batches"]:
        more = refined if label == "refined" else []
        relabel("encode", "--split", "val", "--label", label, *more)
        relabel("export", "batches", "--split", "val", "--label", label, *more)
        name = f"{label}-random-b32-e1-s0"
        graph, alone = (open_batches(path / exports / "batches" / name) for path in (folder, single))
        assert len(graph) == len(alone) == 2
        for number in range(2):
            np.testing.assert_allclose(graph[number].relevance, alone[number].relevance, rtol=1e-6)
    for label in lists["vectors"]:
        (file,) = (folder / exports / "faiss" / label).glob("*.faiss")
        assert faiss.read_index(str(file)).ntotal == len(open_lookup(folder / exports / "lookup" / label))
    for label in lists["served"]:
        lookup = open_lookup(folder / "labels/coco/exports/train/lookup" / label)
        assert len(lookup) == 300
        assert lookup.about.neighbours is not None
        assert lookup.about.neighbours["candidates"] == "train"
    assert (folder / "labels/coco/page/val/report.html").exists()


def write_project(folder: Path) -> None:
    """Write the graph for labels without fetched models, with placeholders of what is fetched and tuned."""
    captions = coco_captions({"test": 5000, "train": 20})
    words = sorted({word for one in captions for word in one["text"].lower().split()})
    values = np.random.default_rng(0).normal(size=(len(words), 8))
    lines = [f"{word} {' '.join(f'{x:.3f}' for x in row)}\n" for word, row in zip(words, values, strict=True)]
    (folder / "words.txt").write_text("".join(lines), encoding="utf-8")
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["sources"] = {label: params["sources"][label] for label in LABELS}
    params["sources"]["word2vec"] |= {"vectors": "words.txt", "tokenizer": "lower_split"}
    params["export"]["labels"] = ["word2vec"]
    params["export"]["batches"] = {"batches_per_epoch": 1}
    lists = {"labels": ",".join(LABELS), "lookups": "cider_lower_split,word2vec", "vectors": "word2vec"}
    lists |= {"batches": "refined", "served": "word2vec", "refined": "--set sources.refined.source=same_image"}
    write_graph(folder, captions, params, **lists)
    text = (folder / "dvc.yaml").read_text(encoding="utf-8")
    text = text.replace("faiss --label sbert", "faiss --label word2vec").replace("${lookups},refined", "${lookups}")
    (folder / "dvc.yaml").write_text(text, encoding="utf-8")
    for name in FETCHED:
        (folder / "data" / name).mkdir(parents=True)
        (folder / "data" / name / "placeholder").write_text(name, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_graph_runs_once_and_repeats_what_changed(tmp_path: Path) -> None:
    write_project(tmp_path)
    dvc(tmp_path, "commit", "--force", "fetch")
    dvc(tmp_path, "repro", "ingest")
    dvc(tmp_path, "commit", "--force", "tune")
    dvc(tmp_path, "repro")
    shown = json.loads(dvc(tmp_path, "metrics", "show", "--json"))[""]["data"]
    for name in ("cxc/cxc.json", "eccv/eccv.json"):
        figures = shown[f"labels/coco/report/test/{name}"]["data"]
        assert set(figures) >= {"cider_lower_split", "word2vec"}
    assert len(open_lookup(tmp_path / "labels/coco/exports/test/lookup/word2vec")) == 25_010
    assert (tmp_path / "labels/coco/page/test/report.html").exists()
    assert "up to date" in dvc(tmp_path, "status")
    assert "up to date" in dvc(tmp_path, "repro")
    # DVC runs stages of all labels; relabel builds one.
    params = yaml.safe_load((tmp_path / "params.yaml").read_text(encoding="utf-8"))
    params["sources"]["cider_lower_split"]["sigma"] = 5.0
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    again = dvc(tmp_path, "repro", "encode")
    assert "encoding cider_lower_split: built" in again
    assert "encoding word2vec: up to date" in again


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
