"""Contract: after a change, a reader gives what a build from nothing gives under today's captions and parameters, or
refuses and names what differs. A cell of `TABLE` is a reader after a change: the name at fault, or None for success.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import chdir
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.relabel_cli.runner import invoke

PARAMS: dict[str, Any] = {
    "ingest": {"dataset": "mine", "format": "jsonl", "path": "captions.jsonl", "tokenizer": "none"},
    "tune": {"cbow": {"tokenizer": "lower_split", "width": 4, "min_count": 1, "epochs": 1, "splits": ["val"]}},
    "neighbours": {"k": 8},
    "export": {"plan": {"sampler": "neighbour", "batch_size": 10, "k": 3}, "trec": {"of": "images"}},
    "sources": {
        "words": {"source": "cbow", "vectors": "words.txt", "tokenizer": "lower_split", "pooling": "max"},
        "cider": {"source": "cider", "tokenizer": "lower_split", "sigma": 6.0},
        "trained": {"source": "cbow", "vectors": "word2vec", "tokenizer": "lower_split"},
    },
}
WORDS = ["a", "dog", "cat", "bird", "man", "on", "hill", "chair", "road", "bus", "red", "big", "runs", "sits"]
SPLITS = {"train": 10, "val": 20, "test": 10}
"""Images of each split, of five captions each. Labels are of val, whose captions and images do not start at row 0."""

NEAR = ("neighbours --label L --within val --of captions", "neighbours --label L --within val --of images")
ENCODE, LOOKUP = "encode --label L --split val", "export lookup --label L --split val"
TUNE = "tune cbow"
_TRAINER = "--data features --captions labels/mine/corpus --namespace mine --device cpu --json"
_SIZES = "--set val=test --set embed=8 --set word=6 --set least=1 --set log_every=1"
_FIT = f"fit {_TRAINER} --split val --batch-size 16 --epochs 1 {_SIZES}"
_PLAN = "labels/mine/exports/val/plan/L-neighbour-b10-e1-s0"
_GRADED = "--loss soft_target --labels labels/mine/exports/val/lookup/L"
READERS = {
    "encode": (ENCODE, "encodings/val/L"),
    "lookup": (LOOKUP, "exports/val/lookup/L"),
    "wds": ("export wds --label L --split val", "exports/val/wds/L"),
    "neighbours": ("export neighbours --label L --split val", "exports/val/neighbours/captions/L"),
    "neighbours of images": (
        "export neighbours --label L --split val --of images",
        "exports/val/neighbours/images/L",
    ),
    "plan": ("export plan --label L --split val", "exports/val/plan/L-neighbour-b10-e1-s0"),
    "trec of images": ("export trec --label L --split val", "exports/val/trec/L"),
    "hf": ("export hf --label L --split val", "exports/val/hf/L"),
    "fit": (f"{_FIT} {_GRADED} --out runs/new", None),
    "fit of a plan": (f"{_FIT} --loss soft_target --plan {_PLAN} --out runs/new", None),
    "eval": (f"eval {_TRAINER} --run runs/base --split val --labels labels/mine/exports/val/lookup/L", None),
}
"""Reader to its command for a label L, and the folder that it writes; None for a trainer, which prints its result."""
EXPORTS = ("lookup", "wds", "neighbours", "neighbours of images", "plan", "trec of images", "hf")
TRAINERS = ("fit", "fit of a plan", "eval")


@dataclass(frozen=True)
class Change:
    """What happens to a project in which everything was made of one label.

    Attributes
    ----------
    label : str
    edits : mapping
        Dotted parameters of params.yaml to their new values.
    captions : bool
        Whether the texts are edited, with the same ids.
    commands : tuple of str
        Run afterwards.
    """

    label: str
    edits: Mapping[str, Any] = field(default_factory=dict)
    captions: bool = False
    commands: tuple[str, ...] = ()


MEAN, SIGMA, WIDTH = {"sources.words.pooling": "mean"}, {"sources.cider.sigma": 3.0}, {"tune.cbow.width": 5}
_ONCE = "--set sources.words.pooling=mean --replace"
CHANGES = {
    "nothing": Change("words"),
    "pooling edited": Change("words", MEAN),
    "pooling edited, neighbours rebuilt": Change("words", MEAN, commands=NEAR),
    "pooling edited, rebuilt": Change("words", MEAN, commands=(*NEAR, LOOKUP)),
    "pooling of one command": Change("words", commands=tuple(f"{c} {_ONCE}" for c in (*NEAR, LOOKUP))),
    "sigma edited": Change("cider", SIGMA),
    "sigma edited, encoded": Change("cider", SIGMA, commands=(ENCODE,)),
    "sigma edited, rebuilt": Change("cider", SIGMA, commands=(ENCODE, *NEAR, LOOKUP)),
    "sigma of one command": Change("cider", commands=(f"{ENCODE} --set sources.cider.sigma=3 --replace",)),
    "width edited": Change("trained", WIDTH),
    "width edited, encoded": Change("trained", WIDTH, commands=(TUNE, ENCODE)),
    "width of one command": Change("trained", commands=(f"{TUNE} --width 5 --replace",)),
    "captions edited": Change("words", captions=True, commands=("ingest",)),
    "captions edited, encoded": Change("words", captions=True, commands=("ingest", ENCODE)),
    "captions edited, rebuilt": Change("words", captions=True, commands=("ingest", ENCODE, *NEAR, LOOKUP)),
}
TABLE: dict[str, dict[str, str | None]] = {
    "nothing": dict.fromkeys(READERS),
    "pooling edited": {"encode": None, **dict.fromkeys(EXPORTS, "pooling (max there, mean here)")},
    "pooling edited, neighbours rebuilt": {**dict.fromkeys(EXPORTS), "wds": "pooling (max there, mean here)"},
    "pooling edited, rebuilt": dict.fromkeys(("encode", *EXPORTS, "fit", "eval")),
    "pooling of one command": {"encode": None, **dict.fromkeys(EXPORTS, "pooling (mean there, max here)")},
    "sigma edited": {"encode": None, **dict.fromkeys(EXPORTS, "sigma (6.0 there, 3.0 here)")},
    "sigma edited, encoded": {"encode": None, **dict.fromkeys(EXPORTS, "another encoding")},
    "sigma edited, rebuilt": {"encode": None, **dict.fromkeys(EXPORTS)},
    "sigma of one command": {"encode": "sigma (3.0 there", **dict.fromkeys(EXPORTS, "sigma (3.0 there, 6.0 here)")},
    "width edited": dict.fromkeys(("encode", *EXPORTS), "width (4 there, 5 here)"),
    "width edited, encoded": {"encode": None, **dict.fromkeys(EXPORTS, "another encoding")},
    "width of one command": dict.fromkeys(("encode", *EXPORTS), "width (5 there, 4 here)"),
    "captions edited": {"encode": None, **dict.fromkeys((*EXPORTS, *TRAINERS), "corpus")},
    "captions edited, encoded": {"encode": None, **dict.fromkeys((*EXPORTS, *TRAINERS), "corpus")},
    "captions edited, rebuilt": dict.fromkeys(READERS) | {"fit of a plan": "corpus"},
}


@dataclass(frozen=True)
class Folder:
    """Working directory of a user."""

    path: Path

    def relabel(self, command: str, label: str = "") -> tuple[int, str]:
        """Run a command, in which L stands for the label; return its exit code and output."""
        with chdir(self.path):
            return invoke(*re.sub(r"\bL\b", label, command).split())

    def done(self, command: str, label: str = "") -> str:
        """Run a command that must succeed; return its output."""
        code, output = self.relabel(command, label)
        assert code == 0, f"{command}: {output}"
        return output

    def write_params(self, edits: Mapping[str, Any]) -> None:
        """Write params.yaml with some values edited."""
        params = deepcopy(PARAMS)
        for name, value in edits.items():
            *above, last = name.split(".")
            section = params
            for key in above:
                section = section[key]
            section[last] = value
        (self.path / "params.yaml").write_text(yaml.safe_dump(params))

    def write_captions(self, seed: int) -> None:
        """Write captions whose texts depend on the seed."""
        rng, splits = np.random.default_rng(seed), [split for split, images in SPLITS.items() for _ in range(images)]
        rows = [
            {"caption_id": 5 * m + i, "image_id": m, "split": split, "text": " ".join(rng.choice(WORDS, 6))}
            for m, split in enumerate(splits)
            for i in range(5)
        ]
        (self.path / "captions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def build(self, label: str) -> None:
        """Make everything that the readers read."""
        for command in ("ingest", *([TUNE] if label == "trained" else []), ENCODE, *NEAR, LOOKUP):
            self.done(command, label)

    def read(self, reader: str, label: str) -> Any:
        """Run a reader; return what it gives."""
        command, out = READERS[reader]
        shutil.rmtree(self.path / "runs/new", ignore_errors=True)
        result = self.done(command, label)
        if reader == "eval":
            return json.loads(result)
        if out is None:
            log = [json.loads(line) for line in (self.path / "runs/new/log.jsonl").read_text().splitlines()]
            return [[line.get("loss"), line.get("rsum")] for line in log]
        folder = self.path / "labels/mine" / out.replace("L", label)
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module", autouse=True)
def _no_collection() -> Iterator[None]:
    """Collect no garbage after each command: with torch in the process it takes longer than the commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relabel.stages.job.release_memory", lambda: None)
        yield


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a project of 200 captions with words, features and a trained model, in which no label was made."""
    folder, rng = Folder(tmp_path_factory.mktemp("empty")), np.random.default_rng(3)
    folder.write_params({})
    folder.write_captions(0)
    lines = [" ".join([word, *(f"{x:.4f}" for x in rng.normal(size=8))]) for word in WORDS]
    (folder.path / "words.txt").write_text("\n".join(lines) + "\n")
    (folder.path / "features").mkdir()
    first = 0
    for split, images in SPLITS.items():
        name = {"val": "dev"}.get(split, split)
        np.save(folder.path / f"features/{name}_ims.npy", rng.normal(size=(images, 3, 8)).astype(np.float32))
        ids = "".join(f"{m}\n" for m in range(first, first + images))
        (folder.path / f"features/{name}_ids.txt").write_text(ids)
        first += images
    folder.done("ingest")
    folder.done(f"{_FIT} --out runs/base")
    return folder


@dataclass
class Projects:
    """Copies of the empty project, each built from nothing once, and what its readers give."""

    empty: Folder
    root: Path
    built: dict[str, Folder] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)

    def build(self, label: str, edits: Mapping[str, Any], captions: bool) -> Folder:
        """Return the project of a label with edited parameters and captions, in which every reader can run."""
        key = f"{label} {dict(edits)} {captions}"
        if key not in self.built:
            folder = Folder(shutil.copytree(self.empty.path, self.root / str(len(self.built))))
            folder.write_params(edits)
            folder.write_captions(int(captions))
            folder.build(label)
            self.built[key] = folder
        return self.built[key]

    def read(self, reader: str, label: str, edits: Mapping[str, Any], captions: bool) -> Any:
        """Return what a reader gives in the project that was built from nothing."""
        key = f"{reader} {label} {dict(edits)} {captions}"
        if key not in self.given:
            folder = self.build(label, edits, captions)
            if reader == "fit of a plan":
                self.read("plan", label, edits, captions)
            self.given[key] = folder.read(reader, label)
        return self.given[key]


@pytest.fixture(scope="module")
def projects(empty: Folder, tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Return the projects that changes are made to and compared with."""
    return Projects(empty, tmp_path_factory.mktemp("projects"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_gives_todays_numbers_or_names_what_differs(change: str, projects: Projects, tmp_path: Path) -> None:
    case = CHANGES[change]
    if case.label == "trained":
        pytest.importorskip("gensim")
    for reader in EXPORTS:
        projects.read(reader, case.label, {}, captions=False)
    folder = Folder(shutil.copytree(projects.build(case.label, {}, captions=False).path, tmp_path / "changed"))
    folder.write_params(case.edits)
    folder.write_captions(int(case.captions))
    for command in case.commands:
        folder.done(command, case.label)
    wrong = []
    # Refusals come first, since a reader that succeeds may bring up to date what the next one reads.
    for reader, fault in sorted(TABLE[change].items(), key=lambda cell: cell[1] is None):
        if fault is None:
            if folder.read(reader, case.label) != projects.read(reader, case.label, case.edits, case.captions):
                wrong.append(f"{reader}: not what a build from nothing gives")
            continue
        shutil.rmtree(folder.path / "runs/new", ignore_errors=True)
        code, output = folder.relabel(READERS[reader][0], case.label)
        # Encoding again in place of a trial is a wrong use.
        if code not in ((2, 3, 4) if reader == "encode" else (3, 4)) or fault not in output:
            wrong.append(f"{reader}: exit code {code}, {output.strip()[-300:]}")
    assert not wrong, "\n".join(wrong)


def test_verify_lists_every_stale_export(projects: Projects, tmp_path: Path) -> None:
    for reader in EXPORTS:
        projects.read(reader, "cider", {}, captions=False)
    folder = Folder(shutil.copytree(projects.build("cider", {}, captions=False).path, tmp_path / "changed"))
    assert "stale" not in folder.done("verify")
    folder.write_params(SIGMA)
    folder.done(ENCODE, "cider")
    output = folder.done("verify")
    for reader in EXPORTS:
        place = READERS[reader][1].replace("L", "cider")
        assert f"stale: labels/mine/{place}: intact, but made from another" in output
