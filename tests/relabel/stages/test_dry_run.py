"""Contract: a dry run states the layout of captions that are not read yet, the rows of a published dataset, and the
state, rows and bytes of what exists; its times are those of finished artefacts, if there are any. It writes nothing.
"""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel_cli.runner import invoke

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.corpus.params import IngestParams
from relabel.corpus.preview import preview
from relabel.stages import Session
from relabel.stages.costs import predict
from relabel.stages.run import plan_run, run
from relabel.store.artefact import work_folder
from relabel.store.manifest import MANIFEST, read_manifest

CIDER = "sources={mine: {source: cider, tokenizer: lower_split}}"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_empty_project_states_the_rows_of_a_published_dataset() -> None:
    steps = plan_run(Session(load_config(None), Runtime(data=Path("data"))), "train", ["cider"])
    assert {(step.stage, step.name): step.rows for step in steps} == {
        ("fetch", "coco-captions"): None,
        ("ingest", "coco"): 616_767,
        ("encode", "cider"): 566_747,
        ("neighbours", "cider"): 566_747,
        ("export", "cider"): 566_747,
        ("report", "train"): None,
    }


def test_states_and_rows_follow_the_artefacts() -> None:
    lines = [{"caption_id": str(i), "image_id": str(i // 5), "text": f"dog {i}"} for i in range(10)]
    Path("captions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    settings = ["ingest.path=captions.jsonl", "ingest.format=jsonl", "ingest.dataset=mine", CIDER]
    session = Session(load_config(None, settings), Runtime())
    stages.ingestion(session).run()

    def states() -> dict[str, tuple[str, int | None]]:
        return {step.stage: (step.state, step.rows) for step in plan_run(session, "all", ["mine"])}

    ahead = dict.fromkeys(("encode", "neighbours", "export"), ("to do", 10)) | {"report": ("to do", None)}
    assert states() == {"ingest": ("done", 10), **ahead}
    job = stages.encoding(session, "mine", "all")
    begun = work_folder(job.out, job.spec().fingerprint)
    begun.mkdir(parents=True)
    assert states() == {"ingest": ("done", 10), **ahead, "encode": ("partly", 10)}
    begun.rmdir()
    assert run(session, "all", ["mine"]).problems == []
    steps = plan_run(session, "all", ["mine"])
    assert {step.state for step in steps} == {"done"}
    for step in steps:
        files = [path for path in Path(step.out).rglob("*") if path.is_file() and path.name != "manifest.json"]
        assert step.bytes == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize(
    ("name", "rows", "size"),
    [
        ("a.csv", 3, "about 3 rows, "),
        ("a.csv.gz", None, ""),
        ("a.parquet", 3, "3 rows, "),
        ("a.arrow", 3, "3 rows, "),
    ],
)
def test_the_head_of_captions_is_read_and_nothing_is_written(name: str, rows: int | None, size: str) -> None:
    captions = pa.table({"image": ["1.jpg", "2.jpg", "3.jpg"], "caption": ["a dog", "two cats", "a bus"]})
    if "csv" in name:
        text = b"image,caption\n1.jpg,a dog\n2.jpg,two cats\n3.jpg,a bus\n"
        Path(name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    elif name == "a.arrow":
        with pa.ipc.new_stream(name, captions.schema) as stream:
            stream.write_table(captions)
    else:
        pq.write_table(captions, name)
    code, output = invoke("run", name, "--dry-run", "--label", "cider", "--json")
    steps = json.loads(output)
    assert code == 0
    assert {step["rows"] for step in steps if step["stage"] != "report"} == {rows}
    facts = steps[0]["note"].split("; ")
    assert facts[1:5] == [
        "images: column image",
        "captions: column caption",
        "caption ids: image and position",
        "splits: all train",
    ]
    assert facts[5] == f"size: {size}{Path(name).stat().st_size} bytes in 1 file"
    code, output = invoke("run", name, "--dry-run")
    assert output.startswith("a: format ")
    assert "\n  images: column image\n" in output
    assert "exports/SPLIT/lookup/cider" in output
    assert [path.name for path in Path().iterdir()] == [name]


@pytest.mark.parametrize(
    ("content", "rows"),
    [(b"", 0), (b"image,caption", 0), (b"image,caption\na,b", 1), (b"image,caption\r1,a dog\r", 1)],
)
def test_few_lines_are_counted_without_a_header(content: bytes, rows: int) -> None:
    Path("a.csv").write_bytes(content)
    params = IngestParams(path=Path("a.csv"), format="csv", image_id_column="image", text_column="caption")
    with suppress(CheckError):  # a file without records
        assert preview(params, Runtime())[1] == rows


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["nosuch.csv"], 3, "nosuch.csv: no such file"),
        (["words.txt"], 4, "no column of captions"),
        (["--dataset", "mine", "--set", "ingest.path=nosuch"], 3, "nosuch: no such file"),
        (["--dataset", "mine"], 2, "no captions for dataset mine"),
    ],
)
def test_captions_that_cannot_be_read_fail_as_in_the_run(arguments: list[str], code: int, problem: str) -> None:
    Path("words.txt").write_text("a,b\nc,d\n")
    failed = invoke("run", *arguments, "--dry-run")
    assert failed == invoke("run", *arguments)
    assert failed[0] == code
    (line,) = failed[1].splitlines()
    assert problem in line


def test_times_are_those_of_finished_artefacts_of_the_same_label() -> None:
    Path("a.csv").write_text("image,caption\n" + "".join(f"{n}.jpg,a dog {n}\n" for n in range(10)))
    session = Session(load_config(None, ["ingest.path=a.csv", "ingest.dataset=a", CIDER]), Runtime())
    assert run(session, None, ["mine"]).problems == []
    encoding, near = Path("labels/a/encodings/train/mine"), Path("labels/a/neighbours/train/captions/mine")

    def edit(folder: Path, rows: int, **provenance: Any) -> None:
        made = read_manifest(folder)
        more = {"metadata": made.metadata | {"rows": [0, rows]}, "provenance": made.provenance | provenance}
        (folder / MANIFEST).write_text(replace(made, **more).to_json())

    def times(rows: int, *settings: str) -> list[tuple[Any, str | None]]:
        session = Session(load_config(None, ["ingest.dataset=b", *(settings or [CIDER])]), Runtime())
        return [predict(session, stage, "mine", rows)[1:] for stage in ("encode", "neighbours")]

    typical = times(10**6)
    assert typical == [(pytest.approx(28), "typical"), (pytest.approx(187 + 350), "typical")]
    for folder in (encoding, near):
        edit(folder, rows=10**6, seconds=1000.0)
    # Twice the captions are four times the pairs.
    assert times(10**6) == [(1000, "measured here")] * 2
    (encode, _), (search, _) = times(2 * 10**6)
    assert 1500 < encode < 2000
    assert 2000 < search < 4000
    # A model takes as long to load for a few captions.
    (encode, _), _ = times(1000)
    assert encode > 100
    assert times(10**6, CIDER.replace("lower_split", "ptb")) == typical
    assert times(10**6, CIDER, "neighbours.k=7") == [(1000, "measured here"), typical[1]]
    for change in ({"rows": 4999}, {"resumed": True}, {"machine": {"cpus": 10_000}}):
        edit(encoding, **{"rows": 10**6, **change})
        assert times(10**6) == [typical[0], (1000, "measured here")]
