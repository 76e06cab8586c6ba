"""Contract: any change of the captions is found by the next command, whatever the size and time of the changed file.

Contract: a training compares captions and lookups with the parameters of today, whichever folders are links and however
it reaches them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Session, open_corpus
from relabel.stages.training import check_labels

LINES = "caption_id,image_id,text\n1,a,a dog\n2,b,two cats\n"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """Return a function that opens the project of a folder of captions; a change counts at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("relabel.store.files._SETTLED", -60.0)
    (tmp_path / "captions/more").mkdir(parents=True)
    (tmp_path / "captions/a.csv").write_text(LINES)

    def session(**values: object) -> Session:
        given = {"ingest.dataset": "mine"} | {f"ingest.{n}": v for n, v in values.items()}
        return Session(load_config(None, [], given), Runtime())

    stages.ingestion(session(path="captions")).run()
    return session


def test_captions_that_were_only_copied_are_accepted(session: Callable[..., Session]) -> None:
    Path("copy.csv").write_text(LINES)
    Path("copy.csv").replace("captions/a.csv")
    assert len(open_corpus(session())) == 2


def same_size_and_time() -> None:
    before = Path("captions/a.csv").stat()
    Path("captions/a.csv").write_text(LINES.replace("dog", "cat"))
    os.utime("captions/a.csv", ns=(before.st_atime_ns, before.st_mtime_ns))


def new_file_below() -> None:
    Path("captions/more/b.csv").write_text(LINES.replace("1,a", "3,c").replace("2,b", "4,d"))


def new_folder() -> None:
    Path("captions/new").mkdir()
    Path("captions/new/b.csv").write_text(LINES.replace("1,a", "3,c").replace("2,b", "4,d"))


def another_file_behind_a_link() -> None:
    Path("other.csv").write_text(LINES.replace("dog", "cow"))
    Path("captions/a.csv").unlink()
    Path("captions/a.csv").symlink_to("../other.csv")


@pytest.mark.parametrize(
    "change", [same_size_and_time, new_file_below, new_folder, another_file_behind_a_link], ids=lambda c: c.__name__
)
def test_changed_captions_are_named(session: Callable[..., Session], change: Callable[[], None]) -> None:
    change()
    with pytest.raises(CheckError, match=r"another (a|more/b|new/b)\.csv"):
        open_corpus(session())


def test_captions_and_labels_behind_links_are_read_by_their_names(session: Callable[..., Session]) -> None:
    Path("deep/disk").mkdir(parents=True)
    Path("far").symlink_to("deep/disk")
    Path("now").symlink_to("captions")
    stages.ingestion(replace(session(dataset="far", path="now"), labels=Path("far"))).run()
    shutil.copytree("captions", "new")
    Path("new/a.csv").write_text(LINES.replace("dog", "cat"))
    assert len(open_corpus(replace(session(dataset="far"), labels=Path("far")))) == 2
    Path("now").unlink()
    Path("now").symlink_to("new")
    with pytest.raises(CheckError, match=r"another a\.csv"):
        open_corpus(replace(session(dataset="far"), labels=Path("far")))


def test_a_changed_parameter_is_named(session: Callable[..., Session]) -> None:
    with pytest.raises(CheckError, match="namespace"):
        open_corpus(session(namespace="ours"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"captions_per_image": 5}, "captions_per_image 5 is for the format scan, not csv"),
        ({"ids": "caption"}, "ids caption is for the format scan, not csv"),
        ({"url": "s3://bucket"}, "path and url are mutually exclusive"),
    ],
)
def test_a_parameter_without_effect_is_refused(session: Callable[..., Session], given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stages.ingestion(session(path="captions", **given))


LOOKUP = "labels/mine/exports/train/lookup/cider"


@pytest.mark.parametrize("linked", ["", "labels", "labels/mine", "labels/mine/corpus", "labels/mine/exports", LOOKUP])
def test_a_training_compares_what_lies_behind_links(linked: str, session: Callable[..., Session]) -> None:
    def write_params(sigma: float) -> None:
        sources = {"cider": {"source": "cider", "tokenizer": "lower_split", "sigma": sigma}}
        Path("params.yaml").write_text(json.dumps({"ingest": {"dataset": "mine"}, "sources": sources}))

    write_params(6)
    stages.encoding(session(), "cider", "train").run()
    stages.lookup_export(session(), "cider", "train").run()
    if linked:
        Path("disk").mkdir()
        Path(linked).rename("disk/moved")
        Path(linked).symlink_to(Path("disk/moved").absolute())
    Path("other").symlink_to("labels")
    corpus, lookup = Path("labels/mine/corpus"), Path(LOOKUP)
    corpora, lookups = {corpus, corpus.absolute(), Path("other/mine/corpus")}, [lookup, lookup.absolute()]
    lookups += lookup.resolve(), Path("other", *lookup.parts[1:])
    # The target of a linked corpus alone does not lead to the project; a lookup's name does.
    pairs = [*product(corpora, lookups), (corpus.resolve(), lookup)]
    for pair in pairs:
        check_labels(pair[0], [pair[1]], Runtime())
    write_params(2)
    for pair in pairs:
        with pytest.raises(CheckError, match=r"sigma \(6.0 there, 2.0 here\)"):
            check_labels(pair[0], [pair[1]], Runtime())
    Path("captions/a.csv").write_text(LINES.replace("dog", "cat"))
    for path in corpora:
        with pytest.raises(CheckError, match=r"another a\.csv"):
            check_labels(path, [], Runtime())
