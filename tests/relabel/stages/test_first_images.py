"""Contract: a limit makes a dataset with its own name of the first images of each split, in the order of the file. The
complete dataset stays, and later commands name the first images by their dataset.

Contract: a run of captions that were read before reads them with the same parameters.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.relabel_cli.runner import contents, invoke

import relabel
from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.params import name_of_first
from relabel.stages import Session, label_splits, open_corpus
from relabel.stages.ingest import fetch_and_ingest, namespace

# Images of the file in this order: the second caption of c is the last line, and e has no valid caption.
LINES = [("c", "train"), ("x", "test"), ("e", "train"), ("a", "train"), ("b", "train"), ("y", "test"), ("c", "train")]
CIDER = "--label cider --set sources.cider.tokenizer=lower_split"


@pytest.fixture(autouse=True)
def captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"{image},{split},{'' if image == 'e' else f'a dog {n}'}\n" for n, (image, split) in enumerate(LINES)]
    path = tmp_path / "mine.csv"
    path.write_text("picture,split,words\n" + "".join(rows))
    return path


def command(text: str) -> str:
    code, output = invoke(*shlex.split(text))
    assert code == 0, output
    return output


READ = "--set ingest.image_id_column=picture --set ingest.text_column=words"


@pytest.mark.parametrize(
    ("limit", "images"),
    [
        (1, {"train": ["c"], "test": ["x"]}),
        (2, {"train": ["a", "c"], "test": ["x", "y"]}),
        (3, {"train": ["a", "b", "c"], "test": ["x", "y"]}),
        (9, {"train": ["a", "b", "c"], "test": ["x", "y"]}),
    ],
)
def test_first_images_of_each_split_have_all_their_captions(limit: int, images: dict[str, list[str]]) -> None:
    command(f"ingest --path mine.csv --dataset mine --limit {limit} {READ}")
    corpus = Corpus.open(Path(f"labels/mine-first-{limit}/corpus"))
    expected = {f"mine-first-{limit}:{image}" for names in images.values() for image in names}
    assert set(corpus.image_ids) == expected
    for split, names in images.items():
        captions = [corpus.caption(row) for row in corpus.split_rows(split)]
        assert [caption.image_id.partition(":")[2] for caption in captions] == [
            name for name in names for image, _ in LINES if image == name
        ]
    # The whole file is read.
    report = json.loads(command(f"ingest --dataset mine-first-{limit} --json"))["report"]
    assert [one["count"] for one in report["left_out"].values()] == [1]


def test_later_commands_need_no_limit_and_the_complete_dataset_stays() -> None:
    command(f"run mine.csv {CIDER} {READ}")
    before = contents(Path("labels/mine"))
    # The complete dataset tells how its file is read.
    command(f"run mine.csv --limit 2 {CIDER}")
    assert contents(Path("labels/mine")) == before
    first = contents(Path("labels/mine-first-2"))
    for again in ("run mine.csv --limit 2", "run --dataset mine-first-2", "encode --dataset mine-first-2"):
        command(f"{again} {CIDER}")
    assert contents(Path("labels/mine-first-2")) == first
    command(f"run --limit 1 --dataset mine-first-2 {CIDER}")
    assert sorted(path.name for path in Path("labels").iterdir()) == ["mine", "mine-first-1", "mine-first-2"]
    # A dataset that is not there is no limit.
    assert invoke("ingest", "--dataset", "mine-first-3")[0] == 2


def test_a_run_reads_captions_as_before_and_new_parameters_count(captions: Path) -> None:
    command(f"run mine.csv {CIDER} {READ}")
    before = contents(Path("labels"))
    for name in ("mine.csv", str(captions), "./mine.csv"):
        command(f"run {name} {CIDER}")
        assert contents(Path("labels")) == before
    command(f"run mine.csv {CIDER} --set ingest.text_column=split")
    assert {*Corpus.open(Path("labels/mine/corpus")).texts} == {"train", "test"}
    # Other captions are described by their own parameters.
    Path("other.csv").write_text("image_id,caption\n1,a dog\n2,a cat\n3,a cow\n")
    command(f"run other.csv --dataset mine {CIDER}")
    assert len(Corpus.open(Path("labels/mine/corpus"))) == 3


def test_python_takes_a_limit() -> None:
    table = {"image_id": ["b", "b", "a", "c"], "caption": ["a dog", "a cat", "a cow", "a hen"]}
    labels = relabel.label(table, "cider", out="labels/mine", limit=2, tokenizer="lower_split")
    ids = [f"mine-first-2:{name}" for name in ("b#0", "b#1", "a#0")]
    assert labels.ids == [*ids, None]
    settings = {"sources.cider.tokenizer": "lower_split"}
    opened = relabel.load("labels/mine-first-2", "cider", settings=settings)
    assert sorted(opened.caption_ids) == sorted(ids)
    relabel.ingest("labels/mine", table)
    result = relabel.run("labels/mine", labels=["cider"], limit=1, settings=settings)
    assert [path.as_posix() for path in result.lookups] == ["labels/mine-first-1/exports/train/lookup/cider"]


def test_first_images_of_a_published_dataset_are_no_benchmark(mirror: Path) -> None:
    fetch_and_ingest(Session(load_config(None, [], {"ingest.limit": 3}), Runtime()), mirror)
    # A later command names no limit, and finds the fetched files.
    later = Session(load_config(None, [], {"ingest.dataset": "coco-first-3"}), Runtime())
    corpus = open_corpus(later)
    assert namespace(later) == corpus.namespace == "coco-first-3"
    assert label_splits(later) == ("train", "val", "test")
    assert [len({*corpus.image[rows.start : rows.stop].tolist()}) for rows in corpus.splits.values()] == [3, 3, 3]


def test_names_of_first_images() -> None:
    assert [name_of_first(name, 5) for name in ("coco", "coco-first-9")] == ["coco-first-5"] * 2
    with pytest.raises(UsageError, match=r"ingest\.limit"):
        load_config(None, [], {"ingest.limit": 0})
