"""Contract: a reader that opens a lookup, a plan or an encoding while another process replaces it gets all of one
version, or an error that names the folder. Opened files stay unchanged, also in a worker.
"""

from __future__ import annotations

import hashlib
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.drills.damage import REFUSALS
from tests.drills.trails import MORE

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import RelabelError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.stages import Project
from relabel_train.lookup import open_lookup, open_plan

ENCODING, LOOKUP = "labels/drill/encodings/all/cbow", "labels/drill/exports/all/lookup/cbow"
PLAN = "labels/drill/exports/train/plan/swap"
MADE = (("encode", "--label", "cbow", "--split", "all"), ("export", "lookup", "--label", "cbow", "--split", "all"))
PLANNED = ("export", "plan", "--label", "cbow", "--split", "train", "--batch-size", "8", "--name", "swap", "--seed")
LAG = 0.02
"""Seconds at most between opening and reading."""


@dataclass(frozen=True)
class Versions:
    """Two projects with different parameters of one label.

    Attributes
    ----------
    folders : tuple of Path
    corpus : Corpus
        Shared by both.
    """

    folders: tuple[Path, Path]
    corpus: Corpus


@pytest.fixture(scope="module")
def versions(trail: Any, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """Build encoding, lookup and plan of cbow: one with vectors of float32 and seed 0, the other with float16 and
    seed 1.
    """
    folders = []
    for seed, stored in ((0, "float32"), (1, "float16")):
        trail.lay(next(step.before for step in trail.steps if step.stage == MORE))
        params = trail.here / "params.yaml"
        text = params.read_text(encoding="utf-8")
        before = "vectors: word2vec}\n  sbert"
        assert before in text
        params.write_text(text.replace(before, f"vectors: word2vec, stored: {stored}}}\n  sbert"))
        shutil.rmtree(trail.here / "labels/drill/neighbours/all/captions/cbow")
        for stage in (*MADE, (*PLANNED, str(seed))):
            end = trail.nursery.run(trail.here, trail.arguments(stage))
            assert end.code == 0, end.output
        folders.append(shutil.copytree(trail.here, tmp_path_factory.mktemp("version") / "project"))
    return Versions((folders[0], folders[1]), Corpus.open(folders[0] / "labels/drill/corpus"))


@contextmanager
def rebuilding(out: Path, versions: Versions, name: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process put both versions into place alternately."""
    command = [sys.executable, "-m", "tests.drills.writer", str(out), *(str(f / name) for f in versions.folders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "1\n"
        yield writer
        assert writer.poll() is None, "the writer ended"
        output, _ = writer.communicate()
        assert int(output.split()[-1]) > 2


def digest(*parts: Any) -> str:
    """Return a digest of served values."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def lookup_of(opened: Any) -> str:
    """Read everything from a lookup."""
    rows = np.asarray(opened.rows)
    return digest(opened.block(rows, dtype=np.float64).tobytes(), opened.caption_ids(rows), opened.about.fingerprint)


def plan_of(opened: Any) -> str:
    """Read every batch of a plan."""
    batches = [[part.tobytes() for part in opened[i]] for i in range(len(opened))]
    return digest(batches, opened.names(len(opened) - 1))


def outcomes(
    open_it: Callable[[], Any], read: Callable[[Any], str], known: set[str], count: int, chance: random.Random
) -> Iterator[str]:
    """Open and read repeatedly; yield `whole`, `refused`, `whole in a worker`, `refused in a worker` or `mixed`."""
    for number in range(count):
        try:
            opened = open_it()
            if number % 2:
                time.sleep(chance.uniform(0, LAG))
            first = read(opened)
        except (RelabelError, *REFUSALS) as error:
            yield "refused" if str(error) else "an error without text"
            continue
        yield "whole" if first in known else "mixed"
        if number % 4 == 0:  # a spawned worker unpickles the reader, which opens the folder again
            try:
                again = read(pickle.loads(pickle.dumps(opened)))
            except (RelabelError, *REFUSALS):
                yield "refused in a worker"
            else:
                yield "whole in a worker" if again == first else "mixed"


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", ["lookup", "plan"])
def test_an_export_under_rebuild_is_read_completely(
    kind: str, versions: Versions, budget: Any, tally: Any, tmp_path: Path
) -> None:
    name, open_one, read = {"lookup": (LOOKUP, open_lookup, lookup_of), "plan": (PLAN, open_plan, plan_of)}[kind]
    versions_read = {read(open_one(folder / name)) for folder in versions.folders}
    assert len(versions_read) == 2
    out = tmp_path / "exports" / Path(name).name
    with rebuilding(out, versions, name):
        for seen in outcomes(
            lambda: open_one(out), read, versions_read, budget.opens * 9 // 20, random.Random(budget.seed)
        ):
            tally[f"opens: {kind}", seen] += 1
    assert tally[f"opens: {kind}", "mixed"] == 0
    assert tally[f"opens: {kind}", "an error without text"] == 0
    assert tally[f"opens: {kind}", "whole"] > budget.opens // 10


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_an_encoding_under_rebuild_is_read_completely(
    versions: Versions, budget: Any, tally: Any, tmp_path: Path
) -> None:
    rows = np.arange(0, len(versions.corpus), 5, dtype=np.int32)

    def project(folder: Path, labels: Path) -> Project:
        runtime = Runtime(data=folder / "data", device="cpu", threads=1)
        opened = Project(load_config(folder / "params.yaml"), runtime, labels)
        opened.__dict__["corpus"] = versions.corpus
        return opened

    def read(one: Project) -> str:
        relevance = stages.open_label(one, "cbow", "all")
        return digest(np.asarray(relevance.pairs(References.single(rows), rows[::-1].copy(), "paired")).tobytes())

    versions_read = [read(project(folder, folder / "labels")) for folder in versions.folders]
    assert len(set(versions_read)) == 2
    labels = shutil.copytree(versions.folders[0] / "labels", tmp_path / "labels")
    chance = random.Random(budget.seed)
    with rebuilding(tmp_path / ENCODING, versions, ENCODING):
        for _ in range(budget.opens // 10):
            at = chance.randrange(2)
            one = project(versions.folders[at], labels)
            for seen in outcomes(lambda one=one: one, read, {versions_read[at]}, 1, chance):  # type: ignore[misc]
                tally["opens: encoding", seen.removesuffix(" in a worker")] += 1
    assert tally["opens: encoding", "mixed"] == 0
    assert tally["opens: encoding", "whole"] > 0
