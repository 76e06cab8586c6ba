"""Contract: `relabel push` and `relabel pull` copy one artefact or a tree of them, say so in one line per artefact, and
end in one line and an exit code where they cannot. A lookup and a side-car that were pulled open and verify.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from relabel_cli.root import app
from relabel_train.lookup import open_lookup
from relabel_train.webdataset import join

PARAMS = """
ingest: {dataset: mine, path: captions.csv, tokenizer: none}
sources:
  vectors: {source: vectors, captions: vectors.parquet, index: null}
"""


def relabel(*arguments: str, code: int = 0) -> str:
    run = CliRunner().invoke(app, [*arguments, "--quiet"])
    assert run.exit_code == code, run.output
    return run.output


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty bucket, with a lookup and a side-car in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS)
    Path("captions.csv").write_text("caption_id,image_id,text\n0,a,a dog\n1,a,a brown dog\n2,b,a cat\n")
    table = pa.table({"id": [f"mine:{i}" for i in range(3)], "vector": [[1.0, i] for i in range(3)]})
    pq.write_table(table, "vectors.parquet")
    relabel("ingest")
    relabel("encode")
    for kind in ("lookup", "wds"):
        relabel("export", kind, "--label", "vectors")
    return f"memory://{tmp_path}/bucket"


def test_a_tree_of_artefacts(bucket: str) -> None:
    lines = relabel("push", "labels", bucket).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "corpus mine",
        "encoding vectors",
        "lookup vectors",
        "wds vectors",
    ]
    assert all(" files, " in line and line.endswith(")") for line in lines)
    assert all("up to date" in line for line in relabel("push", "labels", bucket).splitlines())
    assert len(relabel("pull", bucket, "copy").splitlines()) == 4
    assert "all as written" in relabel("verify", "copy")
    ours, theirs = (
        sorted(path for path in Path(root).rglob("*") if path.is_file() and ".work" not in path.parts)
        for root in ("labels", "copy")
    )
    assert [path.relative_to("labels") for path in ours] == [path.relative_to("copy") for path in theirs]
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]


def test_one_artefact_as_json(bucket: str) -> None:
    summary = json.loads(relabel("push", "labels/mine/exports/train/lookup/vectors", f"{bucket}/lookup", "--json"))
    assert summary["kind"] == "lookup"
    assert summary["copied"]
    assert summary["bytes"] > 0


def test_a_pulled_lookup_and_side_car_open(bucket: str) -> None:
    relabel("push", "labels/mine/exports/train", bucket)
    relabel("pull", f"{bucket}/lookup/vectors", "lookup")
    relabel("pull", f"{bucket}/wds/vectors", "sidecar")
    block = open_lookup("lookup").block([0], [0, 2])
    expected = open_lookup("labels/mine/exports/train/lookup/vectors").block([0], [0, 2])
    assert np.array_equal(block, expected)
    step = join("sidecar")
    shard = next(iter(step.sidecar.about.shards))
    labels = step({"__key__": step.sidecar.shard(shard).keys[0], "__url__": shard})["labels"]
    assert labels.vectors.shape == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "phrase"),
    [
        (("push", "labels", "bucket"), 2, "not a URL"),
        (("push", "labels", "nosuch://bucket"), 2, "Protocol not known"),
        (("push", "captions.csv", "BUCKET"), 3, "no artefact in this folder"),
        (("push", "nowhere", "BUCKET"), 3, "no artefact in this folder"),
        (("pull", "BUCKET", "copy"), 3, "no artefact here. Check the URL."),
    ],
)
def test_commands_that_cannot_copy(arguments: tuple[str, ...], code: int, phrase: str, bucket: str) -> None:
    output = relabel(*(argument.replace("BUCKET", bucket) for argument in arguments), code=code)
    assert phrase in output
    assert len(output.splitlines()) == 1


def test_another_build_needs_replace(bucket: str) -> None:
    relabel("push", "labels", bucket)
    with Path("captions.csv").open("a") as file:
        file.write("3,b,a black cat\n")
    relabel("ingest")
    assert "--replace" in relabel("push", "labels/mine/corpus", f"{bucket}/mine/corpus", code=2)
    relabel("push", "labels/mine/corpus", f"{bucket}/mine/corpus", "--replace")
    assert "up to date" in relabel("push", "labels/mine/corpus", f"{bucket}/mine/corpus")


def test_keys_that_lead_out_of_the_folder_are_refused(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from relabel.store.remote import RemoteFile, RemoteFolder

    monkeypatch.setattr(RemoteFolder, "files", lambda self: {"../x/manifest.json": RemoteFile(1, "")})
    assert "leads out of its folder" in relabel("pull", bucket, "copy", code=4)
