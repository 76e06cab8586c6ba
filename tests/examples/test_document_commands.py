"""Contract: every command of README.md and docs/ can be parsed, and its labels and parameters exist.

Except for a table of commands with reasons, all of them run in a project with a small corpus in place of COCO and end
with exit code 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.examples.conftest import small_coco
from tests.examples.documents import PROGRAMS, ROOT, commands, words
from tests.golden.today import Folder

from relabel.config import load_config
from relabel.core.parameters import Parameters, with_settings
from relabel_cli.root import app
from relabel_cli.trainer import EvalParameters, FitParameters

COMMANDS = commands()
NOT_RUN = {
    r"make |pip |dvc |python ": "sets up an environment, runs in one, or trains for minutes",
    r"relabel run --dataset flickr30k": "has a test of its own",
    r"relabel correlate .*--eccv": "ECCV Caption ranks all of COCO's test split, which the small corpus is not",
    r"relabel correlate --on stsb": "STS-B is fetched, and a cross-encoder tuned",
    r"relabel correlate .*--on all": "it judges ECCV Caption, and every set that is on the machine",
    r"relabel correlate .*\bfuse\b": "`relabel tune fuse` makes the model",
    r"relabel correlate .*--on (cxc,)?flickr8k-expert": "the files of the set are handed out on request",
    r"relabel fetch (glove|corenlp)": "downloads hundreds of megabytes",
    r"relabel (correlate|run|encode) .*\bcbow\b": "GloVe is fetched",
    r"relabel .*all-mpnet-base-v2": "the model is downloaded from the hub",
    r"relabel .*--dataset coco_proxy": "`python -m experiments.proxy_features` writes its captions",
    r"relabel .*--scheduler ": "needs a Dask cluster",
    r"relabel tune (best|sbert|bert_sts|fuse)": "minutes of training, on data that are fetched or on all judged pairs",
    r"relabel (init|--install-completion|--show-completion)\b": "files exist in the project, or the shell is changed",
    r"relabel (fit|eval) ": "trains on features of the user's",
    r"relabel report --images val2014": "the folder of images is the reader's",
}
"""Pattern of commands that are parsed and not run, and why."""
JUDGE = [f"--set=sources.judge.{name}" for name in ("source=scores", "file=judge.parquet", "missing=sbert")]
PREPARED = {
    r"relabel export candidates .*\b(val|train)\b": (
        "encode --label sbert --split {0}",
        "neighbours --label sbert --candidates {0} --queries images",
    ),
    r"relabel (neighbours|false-negatives) --label judge": (
        "encode --label sbert,judge --split val",
        "neighbours --label judge --candidates val",
    ),
    r"relabel export lookup --label judge": ("encode --label judge --split train",),
    r"relabel audit ": ("encode --label sbert --split test", "neighbours --label sbert --candidates test"),
    r"relabel nearest ": ("encode --label sbert --split test",),
    r"relabel false-negatives": (
        "encode --label sbert,cider --split val",  # the judged split of the small corpus
        "neighbours --label sbert --candidates val",
        "correlate --cxc --split val --label sbert,cider",  # pages judge with other parameters
    ),
    r"relabel export batches .*meteor": ("encode --label meteor --split test",),
    r"relabel encode --label wmd": ("tune word2vec",),
    r"relabel neighbours --label wmd": ("tune word2vec", "encode --label wmd --split train"),
    r"relabel export batches .*--items images": (
        "tune word2vec",
        "encode --label wmd --split train",
        "neighbours --label wmd --candidates train --queries images",
    ),
    r"relabel export batches .*graded": (
        "encode --label sbert --split train",
        "neighbours --label sbert --candidates train",
    ),
}
"""Pattern of commands to the commands that pages run before them on other lines or in prose."""
CLIP = [f"--set=sources.clip.{name}" for name in ("source=precomputed", "captions=captions.npy", "images=images.npy")]
ADDED = {
    r"relabel export faiss .*--index": ["--index=IVF4,Flat;nprobe=2"],
    r"relabel export batches .*meteor": ["--batches-per-epoch=1"],
    r"relabel export batches .*--items images": ["--batch-size=8"],
    r"relabel .*--(label|parts) (sbert,)?judge\b": JUDGE,
    r"relabel (encode|export lookup) --label clip": CLIP,
}
"""Pattern of commands to options: the smaller work of a plan (200 batches are 3 million pairs), an index that the
small corpus can train, and the label that the page names in params.yaml."""
TRAINER: dict[str, type[Parameters]] = {"fit": FitParameters, "eval": EvalParameters}
"""Verbs whose `--set` reaches parameters of their own, and not those of params.yaml."""
EAGER = r"relabel --(install|show)-completion\b"
"""Commands whose options act while they are parsed."""


def reason(command: str) -> str | None:
    """Return the reason why a command is not run."""
    if COMMANDS.get(command):
        return "marked as not run on its page"
    return next((text for pattern, text in NOT_RUN.items() if re.match(pattern, command)), None)


def added(command: str) -> list[str]:
    """Return the options that the tests add to a command."""
    return [option for pattern, options in ADDED.items() if re.match(pattern, command) for option in options]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Parse a command line by the command's own parser, without running it."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("relabel", list(arguments))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, list(rest), parent=context)
    params: dict[str, Any] = context.params
    return params


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("relabel ")])
def test_a_command_parses_and_its_labels_and_parameters_exist(command: str) -> None:
    operators = {"&&", "||", "|", ";", ">", "<"} & set(words(command))
    assert not operators, f"{command}: the tests run single commands, so write one per line"
    if re.match(EAGER, command):
        return
    options = parsed([*words(command), *added(command)])
    if trainer := TRAINER.get(words(command)[0]):
        assert {*with_settings({}, options["set"] or [], {})} <= {*trainer.model_fields}
        return
    config = load_config(ROOT / "params.yaml", options.get("set") or [], {"ingest.dataset": options.get("dataset")})
    named = [options.get(name) or [] for name in ("label", "source", "sources", "parts")]
    for label in [label for texts in named for text in texts for label in text.split(",")]:
        config.source(label)


def test_commands_of_every_program_are_found() -> None:
    assert len(COMMANDS) > 50
    assert {command.split()[0] for command in COMMANDS} == set(PROGRAMS)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """Return a project with the checkout's parameters and a small corpus under COCO's name."""
    with pytest.MonkeyPatch.context() as patch:
        yield small_coco(tmp_path_factory.mktemp("pages"), patch)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("command", [command for command in COMMANDS if reason(command) is None])
def test_a_command_runs_unchanged(command: str, session: Folder) -> None:
    matches = [(re.match(pattern, command), steps) for pattern, steps in PREPARED.items()]
    prepared = [f"relabel {step}".format(*match.groups()) for match, steps in matches if match for step in steps]
    for one in (*prepared, command):
        session.done(*words(one), *added(one))


@pytest.mark.slow
@pytest.mark.java
def test_flickr30k_runs_with_the_parameters_of_coco(mirror: Path, tmp_path: Path, monkeypatch: Any) -> None:
    if not (mirror / "flickr30k").is_dir():
        pytest.skip("the mirror has no Flickr30K")
    command = next(c for c in COMMANDS if c.startswith("relabel run --dataset flickr30k"))
    monkeypatch.setenv("RELABEL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RELABEL_MIRROR", str(mirror))
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    folder = Folder(tmp_path)
    folder.done(*words(command), "--split", "test", "--label", "cider_lower_split")
    assert (tmp_path / "labels/flickr30k/exports/test/lookup/cider_lower_split/lookup.json").exists()
    assert not (tmp_path / "labels/coco").exists()
