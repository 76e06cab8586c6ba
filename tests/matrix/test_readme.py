"""Contract: every command of README parses as it stands, and its labels and parameters are known; all but those of a
table, which says why, run in a project with a small corpus in the place of COCO and end with exit code 0."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.conftest import package_file
from tests.matrix.projects import Folder, Line, WordParser, real_lines, write_vectors
from tests.matrix.readme import PROGRAMS, README, commands, words

from relabel.config import load_config
from relabel_cli.root import app

CHECKOUT = README.parent
NOT_RUN = {
    r"make |pip |dvc ": "sets up an environment or runs in one",
    r"relabel run --dataset flickr30k": "has a test of its own",
    r"relabel correlate .*--eccv": "ECCV Caption ranks all of COCO's test split, which the small corpus is not",
    r"relabel correlate .*--stsb": "STS-B is fetched, and a cross-encoder tuned",
    r"relabel fetch (glove|corenlp)": "downloads hundreds of megabytes",
    r"relabel (correlate|run|encode) .*\bglove\b": "GloVe is fetched",
    r"relabel .*all-mpnet-base-v2": "the model is downloaded from the hub",
    r"relabel .*data/sbert-cxc": "`relabel tune sbert` makes the model",
    r"relabel tune (sbert|bert_sts|fuse) ": "minutes of training, on data that are fetched or on all judged pairs",
    r"relabel (fit|eval) ": "FEATURES stands for a folder of the user's",
    r"python -m experiments\.": "minutes of training",
}
"""Pattern of commands that are parsed and not run, and why."""
PREPARED = {
    r"relabel nearest ": [["encode", "--label", "sbert", "--split", "test"]],
    r"relabel export plan .*meteor": [["encode", "--label", "meteor", "--split", "test"]],
    r"relabel export plan .*graded": [
        ["encode", "--label", "sbert", "--split", "train"],
        ["neighbours", "--label", "sbert", "--within", "train"],
    ],
}
"""Pattern of commands to the commands that README runs before them on other lines or in prose."""
ADDED = {r"relabel export plan .*meteor": ["--dry-run"]}
"""Pattern of commands to an option that makes them affordable: 200 batches are 3 million pairs."""


def reason(command: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command)), None)


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Parse a command line by the command's own parser, without running it."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("relabel", list(arguments))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, list(rest), parent=context)
    params: dict[str, Any] = context.params
    return params


def test_there_are_commands() -> None:
    found = commands()
    assert len(found) > 20
    assert {command.split()[0] for command in found} == set(PROGRAMS)


@pytest.mark.parametrize("command", [c for c in dict.fromkeys(commands()) if c.startswith("relabel ")])
def test_a_command_parses_and_its_labels_and_parameters_are_known(command: str) -> None:
    options = parsed(words(command))
    config = load_config(CHECKOUT / "params.yaml", options.get("set") or [], {"ingest.dataset": options.get("dataset")})
    named = [options.get(name) or [] for name in ("label", "source", "sources", "parts")]
    for label in [label for given in named for text in given for label in text.split(",")]:
        config.source(label)


def test_a_command_that_does_not_parse_is_noticed() -> None:
    for command in ("relabel run --no-such-option", "relabel nonsense", "relabel export lookup --split nowhere -l x"):
        with pytest.raises(Exception, match=r"No such (option|command)|is not one of"):
            parsed(words(command))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A project with the checkout's parameters and a small corpus under COCO's name."""
    path = tmp_path_factory.mktemp("readme")
    jar = package_file("pycocoevalcap", "spice/spice-1.0.jar")
    lines = real_lines(jar, images=10, train=30, test=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relabel.sources.spice.encode.SpiceParser", WordParser)
        patch.setattr("relabel.sources.spice.SpiceParser", WordParser)
        patch.setenv("RELABEL_DATA", str(path / "data"))
        folder = Folder(path, patch)
        folder.write(lines)
        write_inputs(path, lines)
        params = yaml.safe_load((CHECKOUT / "params.yaml").read_text(encoding="utf-8"))
        params["ingest"] |= {"format": "jsonl", "path": "captions.jsonl", "expected": {}}
        params["tune"]["cbow"] |= {"width": 16, "epochs": 1, "min_count": 1}
        params["judge"] |= {"split": "val", "resamples": 10}
        (path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
        folder.done("ingest")
        yield folder


def write_inputs(path: Path, lines: list[Line]) -> None:
    """Write the files of a user's own that README names."""
    write_vectors(path / "captions.npy", [line.caption_id for line in lines], 1)
    write_vectors(path / "images.npy", sorted({line.image_id for line in lines}), 2)
    rows = [f'{line.caption_id},{line.image_id},"{line.text.replace(chr(34), "")}"' for line in lines[:40]]
    (path / "captions.csv").write_text("\n".join(["caption_id,image_id,text", *rows]) + "\n", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("command", [c for c in dict.fromkeys(commands()) if reason(c) is None])
def test_a_command_runs_as_it_stands(command: str, project: Folder) -> None:
    for step in [step for pattern, steps in PREPARED.items() if re.match(pattern, command) for step in steps]:
        project.done(*step)
    more = [option for pattern, options in ADDED.items() if re.match(pattern, command) for option in options]
    project.done(*words(command), *more)


@pytest.mark.slow
@pytest.mark.java
def test_flickr30k_runs_beside_the_parameters_of_coco(mirror: Path, tmp_path: Path, monkeypatch: Any) -> None:
    if not (mirror / "flickr30k").is_dir():
        pytest.skip("the mirror has no Flickr30K")
    command = next(c for c in commands() if c.startswith("relabel run --dataset flickr30k"))
    monkeypatch.setenv("RELABEL_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(os.environ, "RELABEL_MIRROR", str(mirror))
    (tmp_path / "params.yaml").write_bytes((CHECKOUT / "params.yaml").read_bytes())
    folder = Folder(tmp_path, monkeypatch)
    folder.done(*words(command), "--split", "test", "--label", "cider_lower_split", "--set", "ingest.tokenizer=none")
    assert (tmp_path / "labels/flickr30k/exports/test/lookup/cider_lower_split/lookup.json").exists()
    assert not (tmp_path / "labels/coco").exists()
