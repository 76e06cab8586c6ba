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
from relabel.stages.session import Notes


@pytest.fixture
def session(small_project: Session, tmp_path: Path) -> Session:
    """Return the small project without neighbours and exports."""
    return in_folder(small_project, tmp_path / "labels")


def test_an_unknown_format_and_missing_or_stale_inputs_are_refused(session: Session, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no format 'parquet'"):
        stages.format_export(session, "parquet", "cbow", "all").run()
    with pytest.raises(MissingError, match="relabel encode --label meteor --split all"):
        stages.format_export(session, "hf", "meteor", "all").run()
    (tmp_path / "others.txt").write_text("dog 1 0\ncats 0 1\n")
    vectors = {"sources.cbow.tokenizer": "lower_split", "sources.cbow.vectors": str(tmp_path / "others.txt")}
    stale = load_config(None, [], vectors)
    with pytest.raises(CheckError, match="vectors"):
        stages.format_export(replace(session, config=stale), "hf", "cbow", "all").run()
    with pytest.raises(MissingError, match="relabel neighbours --label cbow --candidates all --queries captions"):
        stages.neighbours_export(session, "cbow", "all").run()
    stages.neighbour_table(session, "cbow", "all").run()
    config = session.config.model_copy(update={"neighbours": Config().neighbours})
    kept = r"k \(8 there, .*Add `--set neighbours.k=8` to keep it, or run `relabel neighbours .*` to build it again"
    with pytest.raises(CheckError, match=kept):
        stages.neighbours_export(replace(session, config=config), "cbow", "all").run()


ENCODING, NEIGHBOURS = ("encodings/all/cbow", "encode"), ("neighbours/all/captions/cbow", "neighbours")


@pytest.mark.parametrize(
    ("changed", "prepare"),
    [
        (("corpus", "ingest"), lambda p: stages.neighbour_table(p, "cbow", "all", "images")),
        (ENCODING, lambda p: stages.neighbour_table(p, "cbow", "all", "images")),
        (ENCODING, lambda p: stages.format_export(p, "hf", "cbow", "all")),
        (ENCODING, lambda p: stages.lookup_export(p, "part", "all")),
        (ENCODING, lambda p: stages.batches_export(p, "cbow", "all", "b")),
        (NEIGHBOURS, lambda p: stages.format_export(p, "hf", "cbow", "all")),
        (NEIGHBOURS, lambda p: stages.neighbours_export(p, "cbow", "all")),
        (("exports/all/lookup/cbow", "export lookup"), lambda p: stages.wds_export(p, "cbow", "all")),
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
    stages.encoding(session, "part", "all").run()
    folder, command = session.folder() / changed[0], changed[1]
    path = next(path for path in sorted(folder.rglob("*"), reverse=True) if path.suffix in (".parquet", ".npy"))

    def flip() -> None:
        body = bytearray(path.read_bytes())
        body[len(body) // 2] ^= 4
        path.write_bytes(body)

    def another_command() -> Session:
        return replace(session, notes=Notes())

    flip()
    with pytest.raises(CheckError, match=rf"{path.name}.*changed.* Delete .* run `relabel {command}") as caught:
        prepare(another_command()).run()
    assert caught.value.where == str(folder)
    flip()
    assert prepare(another_command()).run()[1]
    flip()
    assert not prepare(another_command()).run()[1]


def test_a_lookup_takes_the_neighbours_that_settings_describe(session: Session) -> None:
    """Check the setting that the error of an export names, and what the lookup records."""
    pytest.importorskip("faiss")
    index = "IVF4,Flat;nprobe=2"
    config = session.config.model_copy(update={"neighbours": NeighboursParams(k=5, index=index)})
    stages.neighbour_table(replace(session, config=config), "cbow", "all").run()
    with pytest.raises(CheckError) as refused:
        stages.lookup_export(session, "cbow", "all").run()
    assert f"Add `--set 'neighbours.index={index}' --set neighbours.k=5` to keep it" in str(refused.value)
    near = stages.lookup_export(replace(session, config=config), "cbow", "all").run()[0].metadata["neighbours"]
    assert (near["width"], near["index"]) == (5, index)
