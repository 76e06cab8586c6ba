"""Contract: captions and parameters belong to a dataset. A corpus is replaced when its own captions changed, or with
--replace. Other captions cannot take the name of a published dataset.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.relabel_cli.runner import invoke as relabel

TEXTS = [f"a {animal} on a {place}" for animal in ("dog", "cat", "bird") for place in ("hill", "chair", "road", "bus")]
CSV = ("--format", "csv", "--path", "captions.csv", "--in-split", "train")
LOWER = ("--label", "cider_lower_split")


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with this repository's params.yaml and two files of captions."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(Path(__file__).parents[2] / "params.yaml", folder)
    monkeypatch.chdir(folder)
    write("captions.csv", TEXTS)
    write("others.csv", [f"two {text}" for text in TEXTS])
    return folder


def write(name: str, texts: Sequence[str]) -> None:
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["caption_id", "image_id", "text"])
        rows.writerows([number, number // 3, text] for number, text in enumerate(texts))


def files(folder: str) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def captions(dataset: str) -> int:
    code, output = relabel("ingest", "--dataset", dataset, *CSV, "--json")
    assert code == 0, output
    return int(json.loads(output)["rows"][1])


def test_captions_of_a_user_do_not_take_a_published_name() -> None:
    for more in ([], ["--dataset", "flickr30k"]):
        code, output = relabel("ingest", *CSV, *more)
        assert code == 4
        assert "--dataset NAME" in output
    assert not Path("labels/coco/corpus").exists()
    assert not Path("labels/flickr30k/corpus").exists()


def test_a_corpus_is_replaced_by_its_own_source_only() -> None:
    assert captions("mine") == 12
    before = files("labels/mine")
    for other in (["--path", "others.csv"], ["--format", "jsonl", "--path", "captions.jsonl"]):
        rows = [{"caption_id": 1, "image_id": 1, "text": "one"}]
        Path("captions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        code, output = relabel("ingest", "--dataset", "mine", *CSV, *other)
        assert code == 2
        assert "corpus mine" in output
        assert "ingest.path ('../../../captions.csv' there" in output
        assert "--dataset NAME" in output
        assert "--replace" in output
        assert files("labels/mine") == before
    code, output = relabel("ingest", "--dataset", "mine", *CSV, "--path", "others.csv", "--replace")
    assert code == 0, output
    code, output = relabel("ingest", "--dataset", "mine", *CSV)
    assert code == 2
    assert "others.csv" in output


def test_the_same_source_may_change(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert captions("mine") == 12
    write("captions.csv", [*TEXTS, "one more"])
    assert captions("mine") == 13
    smaller = ("ingest", "--dataset", "mine", *CSV, "--set", "ingest.rows_per_shard=5")
    code, output = relabel(*smaller)
    assert code == 2
    assert "ingest.rows_per_shard (50000 there, 5 here)" in output
    code, output = relabel(*smaller, "--replace")
    assert code == 0, output
    assert relabel("ingest", "--dataset", "mine", *CSV, "--replace")[0] == 0
    moved = checkout.with_name("moved")
    checkout.rename(moved)
    monkeypatch.chdir(moved)
    write("captions.csv", [*TEXTS, "one more", "and another"])
    assert captions("mine") == 14


def test_an_ingested_dataset_is_known_by_its_name() -> None:
    code, output = relabel("run", "--dataset", "mine", "--split", "train", *LOWER)
    assert code == 2
    assert "no captions are known for dataset mine" in output
    assert captions("mine") == 12
    before = files("labels/mine/corpus")
    for command in (["run", "--dry-run"], ["encode"]):
        code, output = relabel(*command, "--dataset", "mine", "--split", "train", *LOWER)
        assert code == 0, output
    assert files("labels/mine/corpus") == before
    code, output = relabel("ingest", "--dataset", "mine", "--set", "ingest.rows_per_shard=5")
    assert code == 2
    assert "ingest.rows_per_shard (50000 there, 5 here)" in output
    assert files("labels/mine/corpus") == before


def test_one_command_labels_every_split_of_a_file() -> None:
    """Also where params.yaml names COCO; afterwards, the only dataset needs no name where no file names one."""
    with Path("My captions.csv").open("w", encoding="utf-8") as file:
        file.write("image_id,split,text\n")
        file.writelines(f"{n // 3},{('train', 'train', 'test')[n // 3 % 3]},{text}\n" for n, text in enumerate(TEXTS))
    code, output = relabel("run", "My captions.csv", *LOWER)
    assert code == 0, output
    folder = Path("labels/my-captions/exports")
    assert {path.parents[1].name for path in folder.glob("*/lookup/cider_lower_split")} == {"train", "test"}
    assert f'open_lookup("{folder}/train/lookup/cider_lower_split")' in output
    Path("params.yaml").unlink()
    code, output = relabel("nearest", "a dog", *LOWER, "-k", "1")
    assert (code, "my-captions:" in output) == (0, True), output
    assert relabel("encode", *LOWER)[0] == 0
    assert captions("other") == 12
    code, output = relabel("encode", *LOWER)
    assert (code, "my-captions" in output) == (3, True), output  # two datasets: one has to be named
