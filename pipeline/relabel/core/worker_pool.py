"""Pools of processes that answer one-line questions in order: METEOR and SPICE's parser.

A program answers in order, so the first question without an answer is the one at which a process died or fell silent.
The process is replaced and its questions are sent again. A question that ends `ATTEMPTS` processes is given up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from relabel.core.java import JavaError, LineProcess, end_reason
from relabel.core.runtime import Advance, ignore_progress

ATTEMPTS = 2
"""Number of processes that may end at one question before it is given up."""
LINES_PER_PROCESS = 2000
"""Number of questions that justify the start of another process."""
_IN_FLIGHT = 128  # questions sent to one process ahead of its answers
_NOISE = 20  # lines from elsewhere that a program may write before it is ready

Answer = TypeVar("Answer")


class LineError(JavaError):
    """A question that no process answered. `index` is its position among the questions of the call."""

    def __init__(self, what: str, index: int, todo: str | None) -> None:
        super().__init__(what, todo=todo)
        self.index = index


class NoAnswerError(Exception):
    """The reason why a process gives no more answers, or no valid ones."""

    @classmethod
    def unexpected(cls, line: str) -> NoAnswerError:
        """Return the error for a line that violates the protocol."""
        return cls(f"Java said {line[:80]!r}, which is no answer")


class Failure(NamedTuple):
    """A question that is given up.

    `question`: position of the question in the call.
    `reason`: why the last process ended.
    `started`: whether the last process became ready. If not, the question is not to blame.
    `attempts`: processes that ended at this question.
    `ended`: processes that ended in this call.
    """

    question: int
    reason: str
    started: bool
    attempts: int
    ended: int


@dataclass(frozen=True)
class Program:
    """The start of a program and its signs of being ready.

    `command`: returns the command line. Called only when a process is needed.
    `greeting`: first line sent.
    `ready`: takes the lines before the first answer one by one and returns True for the last of them. Raises
        NoAnswerError.
    `silence`: seconds without a line after which a process that is ready counts as hung.
    `start`: seconds without a line after which a process that is not ready yet counts as hung.
    """

    command: Callable[[], list[str]]
    greeting: str
    ready: Callable[[str], bool]
    silence: float
    start: float


@dataclass(eq=False)
class _Worker:
    process: LineProcess
    flight: deque[int] = field(default_factory=deque)  # questions sent and not answered, in order
    replies: list[str] = field(default_factory=list)  # lines of the answer to the first of them
    ready: bool = False
    noise: int = 0
    last: float = field(default_factory=time.monotonic)


class WorkerPool:
    """Up to `processes` processes of one program, which stay alive for the next call.

    `restarts`: number of processes that may end within one call, at any question. Unlimited by default.
    """

    def __init__(self, program: Program, processes: int = 1, restarts: int | None = None) -> None:
        self._program, self._processes, self._restarts = program, processes, restarts
        self._events: queue.SimpleQueue[tuple[LineProcess, list[str] | None]] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._asked = 0
        # The processes serve one call at a time.
        self._lock = threading.Lock()

    def ask(
        self,
        questions: Sequence[str],
        read: Callable[[list[str]], Answer | None],
        give_up: Callable[[Failure], Answer],
        advance: Advance = ignore_progress,
    ) -> list[Answer]:
        """Return the answers to questions, in the order of the questions.

        `read`: takes the lines received for one question and returns the answer, or None if more lines must come.
        Raises NoAnswerError. `give_up`: returns a substitute for the answer to a question that is given up, or raises.
        `advance`: called with the number of new answers.
        """
        answers: dict[int, Answer] = {}
        waiting = deque(range(len(questions)))
        # Number of processes that ended, by the question they ended at.
        ended: Counter[int] = Counter()
        with self._lock:
            try:
                window = self._begin(questions, waiting)
                while len(answers) < len(questions):
                    worker, lines, trouble = self._next()
                    try:
                        if trouble:
                            raise NoAnswerError(trouble)
                        for line in lines:
                            if (answer := self._read(worker, line, read)) is not None:
                                answers[worker.flight.popleft()] = answer
                                advance(1)
                    except NoAnswerError as error:
                        # Its questions are sent again first, so the one at fault ends the next process soon.
                        ended[self._remove(worker, waiting)] += 1
                        if not waiting:
                            continue
                        failure = Failure(waiting[0], str(error), worker.ready, ended[waiting[0]], ended.total())
                        if failure.attempts >= ATTEMPTS or failure.ended == self._restarts:
                            answers[waiting.popleft()] = give_up(failure)
                            advance(1)
                        if waiting:
                            worker = self._start()
                    _top_up(worker, questions, waiting, window)
            except BaseException:
                # An answer that is still to come must not be taken for an answer to the next call.
                self.close()
                raise
        return [answers[i] for i in range(len(questions))]

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.process.kill()
        self._workers.clear()

    def _begin(self, questions: Sequence[str], waiting: deque[int]) -> int:
        """Start as many processes as the questions justify, send the first questions, and return the window."""
        self._asked += len(questions)
        while questions and len(self._workers) < min(self._processes, 1 + self._asked // LINES_PER_PROCESS):
            self._start()
        # A short call is spread over the processes; a long one keeps each of them busy.
        window = max(4, min(_IN_FLIGHT, len(questions) // (2 * max(1, len(self._workers)))))
        for worker in self._workers:
            worker.last = time.monotonic()
            _top_up(worker, questions, waiting, window)
        return window

    def _start(self) -> _Worker:
        worker = _Worker(LineProcess(self._program.command(), self._events))
        worker.process.send([self._program.greeting])
        self._workers.append(worker)
        return worker

    def _remove(self, worker: _Worker, waiting: deque[int]) -> int:
        """End a process, put its questions back, and return the first of them; -1 if it had none."""
        worker.process.kill()
        self._workers.remove(worker)
        waiting.extendleft(reversed(worker.flight))
        return worker.flight[0] if worker.flight else -1

    def _next(self) -> tuple[_Worker, list[str], str]:
        """Wait for lines of a process, or for the reason why a busy process gives no more."""

        def limit(worker: _Worker) -> float:
            return self._program.silence if worker.ready else self._program.start

        while True:
            # Only a process with open questions can be late. The one whose limit ends first decides how long to wait.
            oldest = min((w for w in self._workers if w.flight), key=lambda w: w.last + limit(w))
            try:
                left = oldest.last + limit(oldest) - time.monotonic()
                process, lines = self._events.get(timeout=max(left, 0.0))
            except queue.Empty:
                return oldest, [], f"Java said nothing for {limit(oldest):g} s{oldest.process.complaint()}"
            # Lines of a process that was replaced meanwhile match no worker and are dropped.
            for worker in self._workers:
                if worker.process is process:
                    worker.last = time.monotonic()
                    return (worker, [], end_reason(process)) if lines is None else (worker, lines, "")

    def _read(self, worker: _Worker, line: str, read: Callable[[list[str]], Answer | None]) -> Answer | None:
        """Take one line and return the answer that it completes, or None."""
        if not worker.ready:
            worker.ready = self._program.ready(line)
            worker.noise += 1
            if not worker.ready and worker.noise > _NOISE:
                raise NoAnswerError.unexpected(line)
            return None
        if not worker.flight:
            raise NoAnswerError.unexpected(line)
        worker.replies.append(line)
        answer = read(worker.replies)
        if answer is not None:
            worker.replies.clear()
        return answer


def _top_up(worker: _Worker, questions: Sequence[str], waiting: deque[int], window: int) -> None:
    """Send questions when half of the window is free, so that a process never waits for one."""
    if waiting and len(worker.flight) <= window // 2:
        batch = [waiting.popleft() for _ in range(min(window - len(worker.flight), len(waiting)))]
        worker.flight.extend(batch)
        worker.process.send([questions[i] for i in batch])
