"""Contract: captions and parameters belong to a dataset. A corpus follows its captions and parameters: a change builds
it again and is named. Other captions cannot take the name of a published dataset.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.relabel_cli.runner import contents
from tests.relabel_cli.runner import invoke as relabel

TEXTS = [f"a {animal} on a {place}" for animal in ("dog", "cat", "bird") for place in ("hill", "chair", "road", "bus")]
CSV = ("--format", "csv", "--path", "captions.csv", "--in-split", "train")
INGEST = ("ingest", "--dataset", "mine")
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


def captions(dataset: str) -> int:
    """Ingest the captions; return their number."""
    return int(json.loads(done("ingest", "--dataset", dataset, *CSV, "--json"))["rows"][1])


def done(*arguments: str, quiet: bool = True) -> str:
    """Run a command that succeeds; return its output."""
    code, output = relabel(*arguments, quiet=quiet)
    assert code == 0, output
    return output


def files(folder: str) -> dict[str, bytes | None]:
    return {name: body for name, body in contents(Path(folder)).items() if body is not None}


def refused(*arguments: str, said: Sequence[str], code: int = 2) -> None:
    """Run a command that states its reason and leaves every artefact as it was."""
    before = files("labels")
    found, output = relabel(*arguments)
    assert (found, [part for part in said if part not in output]) == (code, []), output
    assert files("labels") == before


def test_captions_of_a_user_do_not_take_a_published_name() -> None:
    for more in ([], ["--dataset", "flickr30k"]):
        refused("ingest", *CSV, *more, said=["--dataset NAME"], code=4)


def test_a_corpus_follows_its_parameters() -> None:
    assert captions("mine") == 12
    Path("captions.jsonl").write_text(json.dumps({"caption_id": 1, "image_id": 1, "text": "one"}))
    output = done(*INGEST, *CSV, "--format", "jsonl", "--path", "captions.jsonl", quiet=False)
    assert "corpus mine is built again: ingest.format ('csv' there, 'jsonl' here), ingest.path" in output
    assert "1 captions of 1 images" in output
    assert captions("mine") == 12
    done("encode", "--dataset", "mine", *LOWER)
    # A reader never changes what it reads.
    other = ("--set", "ingest.path=others.csv")
    refused("nearest", "a dog", "--dataset", "mine", *LOWER, *other, said=["others.csv"], code=4)


def test_the_same_source_may_change(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert captions("mine") == 12
    write("captions.csv", [*TEXTS, "one more"])
    assert captions("mine") == 13
    smaller = (*INGEST, *CSV, "--set", "ingest.duplicates=drop")
    assert "ingest.duplicates ('keep' there, 'drop' here)" in done(*smaller, quiet=False)
    done(*INGEST, *CSV)
    moved = checkout.with_name("moved")
    checkout.rename(moved)
    monkeypatch.chdir(moved)
    write("captions.csv", [*TEXTS, "one more", "and another"])
    assert captions("mine") == 14


def test_an_ingested_dataset_is_known_by_its_name() -> None:
    mine = ("--dataset", "mine", "--split", "train", *LOWER)
    refused("run", *mine, said=["no captions for dataset mine"])
    assert captions("mine") == 12
    before = files("labels/mine/corpus")
    done("run", "--dry-run", *mine)
    done("encode", *mine)
    assert files("labels/mine/corpus") == before
    assert "ingest.duplicates ('keep' there, 'drop' here)" in done(
        *INGEST, "--set", "ingest.duplicates=drop", quiet=False
    )


def test_one_command_labels_every_split_of_a_file() -> None:
    """Also where params.yaml names COCO; afterwards, the only dataset needs no name where no file names one."""
    with Path("My captions.csv").open("w", encoding="utf-8") as file:
        file.write("image_id,split,text\n")
        file.writelines(f"{n // 3},{('train', 'train', 'test')[n // 3 % 3]},{text}\n" for n, text in enumerate(TEXTS))
    output = done("run", "My captions.csv", *LOWER)
    folder = Path("labels/my-captions/exports")
    assert {path.parents[1].name for path in folder.glob("*/lookup/cider_lower_split")} == {"train", "test"}
    assert f'open_lookup("{folder}/train/lookup/cider_lower_split")' in output
    Path("params.yaml").unlink()
    assert "my-captions:" in done("nearest", "a dog", *LOWER, "-k", "1")
    refused("nearest", " ", *LOWER, said=["the query is empty"])
    done("encode", *LOWER)
    assert captions("other") == 12
    for verb in ("encode", "run", "report"):  # two datasets: one has to be named
        refused(verb, *LOWER, said=["several datasets", "my-captions, other"])
