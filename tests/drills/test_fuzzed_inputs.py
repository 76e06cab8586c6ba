"""Contract: any input gives a result of the same kind as a good one, or an error of its reader with the reason.

Inputs are good files with a seeded change. Each is read in a forked process with limits of time and memory, so that a
hang, a crash inside a library or a large allocation fails the case. A failing case leaves its files below tmp_path.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from tests.drills.batches import run_cases
from tests.drills.inputs import EXPORTS, INPUTS, Input
from tests.drills.mutation import Mutator

from relabel.stages import Project

pytestmark = pytest.mark.timeout(3600)
LONGEST = 5000
"""Characters of a message; it is shown on one line."""


class Fuzzer:
    """Cases of one reader; case n of a seed is always the same input."""

    def __init__(self, name: str, subject: Input, seed: int, folder: Path) -> None:
        self.name, self.input, self.seed, self.folder = name, subject, seed, folder
        self.kind = type(self._read_good())
        self.process: int | None = None

    def files(self, case: int) -> dict[str, bytes]:
        """Return the files that a case changes."""
        mutator = Mutator(f"{self.seed} {self.name} {case}")
        names = [name for name in self.input.files if name not in self.input.fixed]
        chosen = mutator.rng.sample(names, min(len(names), mutator.rng.choice((1, 1, 1, 2))))
        return {name: mutator.change(name, self.input.files[name]) for name in chosen}

    def run(self, case: int) -> str | None:
        """Read the files of a case; return how the outcome violates the contract."""
        if self.process != os.getpid():  # an earlier process may have ended during a case
            self.lay(self.input.files)
            self.process = os.getpid()
        changed = self.files(case)
        self.lay(changed)
        try:
            result = self.input.read(self.folder)
        except self.input.errors as error:
            message = str(error)
            return None if message.strip() and len(message) <= LONGEST else f"a message of {len(message)} characters"
        finally:
            self.lay({name: self.input.files[name] for name in changed})
        return None if type(result) is self.kind else f"expected {self.kind.__name__}, found {type(result).__name__}"

    def lay(self, files: dict[str, bytes]) -> None:
        """Write files into the folder."""
        for name, content in files.items():
            (self.folder / name).write_bytes(content)

    def _read_good(self) -> Any:
        self.lay(self.input.files)
        return self.input.read(self.folder)


def fuzz(name: str, subject: Input, cases: int, seed: int, folder: Path) -> list[str]:
    """Run the cases of one reader; return a line per failure and keep its files in a folder."""
    (folder / "files").mkdir()
    fuzzer = Fuzzer(name, subject, seed, folder / "files")
    lines = []
    for failure in run_cases(fuzzer.run, range(cases), folder):
        case_folder = folder / f"case-{failure.case}"
        case_folder.mkdir()
        for file, content in (fuzzer.input.files | fuzzer.files(failure.case)).items():
            (case_folder / file).write_bytes(content)
        lines.append(f"{name}, seed {seed}, case {failure.case} (files in {case_folder}): {failure.reason}")
    return lines


@pytest.mark.parametrize("name", INPUTS)
def test_a_few_changed_inputs_are_read_or_refused(name: str, tmp_path: Path) -> None:
    assert not fuzz(name, INPUTS[name], 8, 0, tmp_path)


def drill(name: str, subject: Input, budget: Any, folder: Path) -> None:
    cases = max(1, math.ceil(budget.inputs / (len(INPUTS) + len(EXPORTS))))
    failures = fuzz(name, subject, cases, budget.seed, folder)
    assert not failures, "\n\n".join(failures[:5])


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_changed_inputs_are_read_or_refused(name: str, budget: Any, tmp_path: Path) -> None:
    drill(name, INPUTS[name], budget, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_changed_exports_are_read_or_refused(name: str, small_project: Project, budget: Any, tmp_path: Path) -> None:
    drill(name, EXPORTS[name](small_project), budget, tmp_path)
