"""Contract: any input gives a result of the same kind as a good one, or an error of its reader with the reason.

Inputs are good files with a seeded change. Each is read in a forked process with limits of time and memory, so that a
hang, a crash inside a library or a large allocation fails the case. A failing case leaves its files below tmp_path.
"""

from __future__ import annotations

import resource
import shutil
import traceback
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.drills.inputs import EXPORTS, INPUTS, Input
from tests.drills.mutation import Mutator

from relabel.stages import Session

pytestmark = pytest.mark.timeout(3600)
SECONDS = 20  # that one case may take
MEMORY = 2 << 30  # bytes of address space that a case may take beside those it begins with
LONGEST = 5000  # characters of a message; it is shown on one line


def outcome(subject: Input, folder: Path, kind: type) -> str:
    """Read the files of a folder; return how the result violates the contract, or nothing."""
    try:
        result = subject.read(folder)
    except subject.errors as error:
        message = str(error)
        return "" if message.strip() and len(message) <= LONGEST else f"a message of {len(message)} characters"
    except BaseException:
        return traceback.format_exc()
    return "" if type(result) is kind else f"expected {kind.__name__}, found {type(result).__name__}"


def read_within_limits(subject: Input, folder: Path, kind: type, answer: Path) -> None:
    """Write the outcome into the file `answer`."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    answer.write_text(outcome(subject, folder, kind), encoding="utf-8", errors="backslashreplace")


def fuzz(name: str, subject: Input, cases: int, seed: int, folder: Path) -> list[str]:
    """Run the cases of one reader; return a line per failure. Case n of a seed is always the same input."""
    lay(subject.files, folder / "good")
    kind, failures = type(subject.read(folder / "good")), []
    for case in range(cases):
        mutator = Mutator(f"{seed} {name} {case}")
        names = [file for file in subject.files if file not in subject.fixed]
        chosen = mutator.rng.sample(names, min(len(names), mutator.rng.choice((1, 1, 1, 2))))
        place, answer = folder / f"case-{case}", folder / "answer"
        lay(subject.files | {file: mutator.change(file, subject.files[file]) for file in chosen}, place)
        process = get_context("fork").Process(target=read_within_limits, args=(subject, place, kind, answer))
        process.start()
        process.join(SECONDS)
        process.kill()
        process.join()
        if reason := f"process ended with {process.exitcode}" if process.exitcode else answer.read_text():
            failures.append(f"{name}, seed {seed}, case {case} (files in {place}): {reason}")
        else:
            shutil.rmtree(place)
    return failures


def lay(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", INPUTS)
def test_a_few_changed_inputs_are_read_or_refused(name: str, tmp_path: Path) -> None:
    assert fuzz(name, INPUTS[name], 4, 0, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*INPUTS, *EXPORTS])
def test_changed_files_are_read_or_refused(name: str, budget: Any, small_project: Session, tmp_path: Path) -> None:
    subject = INPUTS[name] if name in INPUTS else EXPORTS[name](small_project)
    cases = 1 + budget.inputs // len([*INPUTS, *EXPORTS])
    assert fuzz(name, subject, cases, budget.seed, tmp_path) == []
