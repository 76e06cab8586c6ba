"""Contract: an export is an artefact: refused if its inputs are stale or missing.

Contract: no artefact is made of files that have other bytes than were written; the error names file and command.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.relabel.export.formats import in_folder

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.neighbour_tables.spec import NeighboursParams
from relabel.sources.scores import ScoresParams
from relabel.stages import Job, Session


@pytest.fixture
def session(small_project: Session, tmp_path: Path) -> Session:
    """Return the small project without neighbours and exports."""
    return in_folder(small_project, tmp_path / "labels")


def test_an_unknown_format_and_missing_or_stale_inputs_are_refused(session: Session, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no format 'parquet'"):
        stages.export(session, "parquet", "cbow", "all").run()
    with pytest.raises(MissingError, match="relabel encode --label meteor --split all"):
        stages.export(session, "hf", "meteor", "all").run()
    (tmp_path / "others.txt").write_text("dog 1 0\ncats 0 1\n")
    vectors = {"sources.cbow.tokenizer": "lower_split", "sources.cbow.vectors": str(tmp_path / "others.txt")}
    stale = load_config(None, [], vectors)
    with pytest.raises(CheckError, match="vectors"):
        stages.export(replace(session, config=stale), "hf", "cbow", "all").run()
    with pytest.raises(MissingError, match="relabel neighbours --label cbow --candidates all --queries captions"):
        stages.export_neighbours(session, "cbow", "all").run()
    stages.neighbours(session, "cbow", "all").run()
    config = session.config.model_copy(update={"neighbours": Config().neighbours})
    kept = r"k \(8 there, .*Add `--set neighbours.k=8` to keep it, or run `relabel neighbours .*` to make it again"
    with pytest.raises(CheckError, match=kept):
        stages.export_neighbours(replace(session, config=config), "cbow", "all").run()


ENCODING, NEIGHBOURS = ("encodings/all/cbow", "encode"), ("neighbours/all/captions/cbow", "neighbours")


@pytest.mark.parametrize(
    ("changed", "prepare"),
    [
        (("corpus", "ingest"), lambda p: stages.neighbours(p, "cbow", "all", "images")),
        (ENCODING, lambda p: stages.neighbours(p, "cbow", "all", "images")),
        (ENCODING, lambda p: stages.export(p, "hf", "cbow", "all")),
        (ENCODING, lambda p: stages.export_lookup(p, "part", "all")),
        (ENCODING, lambda p: stages.export_batches(p, "cbow", "all", "b")),
        (NEIGHBOURS, lambda p: stages.export(p, "hf", "cbow", "all")),
        (NEIGHBOURS, lambda p: stages.export_neighbours(p, "cbow", "all")),
        (("exports/all/lookup/cbow", "export lookup"), lambda p: stages.export_wds(p, "cbow", "all")),
    ],
)
def test_no_artefact_is_made_of_changed_bytes(
    changed: tuple[str, str], prepare: Callable[[Session], Job], small_project: Session, tmp_path: Path
) -> None:
    (tmp_path / "scores.csv").write_text("image_id,caption_id,score\n图0,ç0-0,0.5\n", encoding="utf-8")
    made_of = ScoresParams(file=str(tmp_path / "scores.csv"), missing="cbow")
    config = small_project.config.model_copy(update={"sources": small_project.config.sources | {"part": made_of}})
    labels = shutil.copytree(small_project.labels, tmp_path / "labels")
    session = replace(small_project, config=config, labels=labels)
    stages.encode(session, "part", "all").run()
    folder, command = session.folder() / changed[0], changed[1]
    path = next(path for path in sorted(folder.rglob("*"), reverse=True) if path.suffix in (".parquet", ".npy"))

    def flip() -> None:
        body = bytearray(path.read_bytes())
        body[len(body) // 2] ^= 4
        path.write_bytes(body)

    flip()
    with pytest.raises(CheckError, match=rf"{path.name}.*changed.* Delete .* run `relabel {command}") as caught:
        prepare(replace(session)).run()
    assert caught.value.where == str(folder)
    flip()
    assert prepare(replace(session)).run()[1]
    flip()
    assert not prepare(replace(session)).run()[1]


def test_a_lookup_takes_the_neighbours_that_settings_describe(session: Session) -> None:
    """Check the setting that the error of an export names, and what the lookup records."""
    pytest.importorskip("faiss")
    index = "IVF4,Flat;nprobe=2"
    config = session.config.model_copy(update={"neighbours": NeighboursParams(k=5, index=index)})
    stages.neighbours(replace(session, config=config), "cbow", "all").run()
    with pytest.raises(CheckError) as refused:
        stages.export_lookup(session, "cbow", "all").run()
    assert f"Add `--set 'neighbours.index={index}' --set neighbours.k=5` to keep it" in str(refused.value)
    near = stages.export_lookup(replace(session, config=config), "cbow", "all").run()[0].metadata["neighbours"]
    assert (near["width"], near["index"]) == (5, index)
