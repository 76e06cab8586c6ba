"""Contract: every question gets its own answer even if processes end, and a question that ends two processes is
given up. A program that never becomes ready is not blamed on a question. No process outlives `close` or an
interrupted call.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from relabel.core.worker_pool import Failure, NoAnswerError, Program, WorkerPool

pytestmark = pytest.mark.skipif(os.name == "nt", reason="process groups")

PROGRAM = """
import os, sys, time
open({log!r}, "a").write("x")
count = os.path.getsize({log!r})
{start}
for line in sys.stdin:
    line = line.strip()
    {trouble}
    print("ready" if line == "hello" else line.upper(), flush=True)
"""


def pool(folder: Path, trouble: str = "pass", start: str = "pass", processes: int = 1) -> WorkerPool:
    code = textwrap.dedent(PROGRAM).format(log=str(folder / "log"), trouble=trouble, start=start)
    ready = "ready".__eq__
    return WorkerPool(Program(lambda: [sys.executable, "-c", code], "hello", ready, 30.0, 30.0), processes)


def starts(folder: Path) -> int:
    return (folder / "log").stat().st_size


def upper(replies: list[str]) -> str:
    if not replies[0].isupper():
        raise NoAnswerError.unexpected(replies[0])
    return replies[0]


def given_up(failure: Failure) -> str:
    return f"{failure.question} {failure.started} {failure.attempts} {failure.reason}"


QUESTIONS = [f"question {i}" for i in range(300)]
ANSWERS = [question.upper() for question in QUESTIONS]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_that_ends_once_loses_nothing(
    tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relabel.core.worker_pool.LINES_PER_PROCESS", 100)
    workers = pool(tmp_path, "if line == 'question 3' and count == 1: os._exit(3)", processes=processes)
    progress: list[int] = []
    assert workers.ask(QUESTIONS, upper, given_up, progress.append) == ANSWERS
    assert sum(progress) == len(QUESTIONS)
    workers.close()


def test_a_question_that_ends_two_processes_is_given_up_and_the_others_are_answered(tmp_path: Path) -> None:
    workers = pool(tmp_path, "if line == 'question 3': print('nonsense', flush=True); continue")
    answers = workers.ask(QUESTIONS, upper, given_up)
    assert answers[3] == "3 True 2 Java said 'nonsense', which is no answer"
    assert [*answers[:3], *answers[4:]] == [*ANSWERS[:3], *ANSWERS[4:]]
    assert starts(tmp_path) == 3
    workers.close()


def test_a_program_that_never_becomes_ready(tmp_path: Path) -> None:
    workers = pool(tmp_path, start="sys.exit('no such class')")
    answers = workers.ask(["a"], upper, given_up)
    assert answers == ["0 False 2 Java ended with exit code 1 (its last words: no such class)"]
    assert workers.ask([], upper, given_up) == []
    assert starts(tmp_path) == 2


def test_a_process_that_ended_between_two_calls_is_replaced(tmp_path: Path) -> None:
    workers = pool(tmp_path)
    assert workers.ask(QUESTIONS[:4], upper, given_up) == ANSWERS[:4]
    workers._workers[0].process.kill()
    assert workers.ask(QUESTIONS[:4], upper, given_up) == ANSWERS[:4]
    assert starts(tmp_path) == 2
    workers.close()


def test_an_interrupted_call_leaves_no_process_and_no_answers(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    workers = pool(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        workers.ask(QUESTIONS, upper, given_up, stop)
    assert workers.ask(QUESTIONS[5:9], upper, given_up) == ANSWERS[5:9]
    assert starts(tmp_path) == 2
    workers.close()
