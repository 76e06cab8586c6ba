"""Many METEOR processes that score many pairs: lines in flight, restarts, and the pair named when all fails.

The jar's `-stdio` protocol: `SCORE ||| reference ||| ... ||| candidate` is answered by 23 statistics of the best
reference, `EVAL ||| statistics` by their score, twice. It answers in order, so the first line without an answer is the
one a dead or silent process choked on.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relabel.line_process import JavaError, LineProcess

ATTEMPTS = 2
"""How often one line may end a process before it is named and given up."""
RESTARTS = 10
"""How many processes may end within one call, whatever the line."""
LINES_PER_PROCESS = 2000
"""Lines that make another process worth its start."""

_AGAIN = "Run it again; if it fails there again, look at these captions."
_NO_START = "See `relabel doctor`; the parameter `heap` says how much memory a process may take."
_IN_FLIGHT = 128
_NOISE = 20  # lines of other origin borne before a process says it is ready
_READY = re.compile(r"Error: specify Meteor stats")
_NUMBER = r"\d+(?:\.\d+)?(?:E-?\d+)?"
_STATISTICS = re.compile(rf"(?:{_NUMBER} ){{22}}{_NUMBER}")
_SCORE = re.compile(_NUMBER)

_Events = queue.SimpleQueue[tuple[LineProcess, list[str] | None]]


class LineError(JavaError):
    """A line that no process would answer.

    Attributes
    ----------
    index : int
        Which of the lines asked.
    """

    def __init__(self, what: str, index: int, todo: str | None) -> None:
        super().__init__(what, todo=todo)
        self.index = index


@dataclass(eq=False)
class _Worker:
    process: LineProcess
    flight: deque[int] = field(default_factory=deque)
    replies: list[str] = field(default_factory=list)
    ready: bool = False
    noise: int = 0
    last: float = field(default_factory=time.monotonic)


class MeteorPool:
    """Scores lines on up to `processes` processes, which stay for the next call.

    Parameters
    ----------
    command : callable
        Makes the command that starts one METEOR with `-stdio`; not called before it is needed.
    processes : int
    silence : float
        Seconds without an answer after which a process counts as hung.
    """

    def __init__(self, command: Callable[[], list[str]], processes: int, silence: float) -> None:
        self._command, self._processes, self._silence = command, processes, silence
        self._events: _Events = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._asked = 0
        self._scores: dict[str, float] = {}
        self._lock = threading.Lock()  # two threads share processes by turns

    def score(self, lines: Sequence[str]) -> list[float]:
        """Score lines of the form `reference ||| ... ||| candidate`.

        Parameters
        ----------
        lines : sequence of str
            All texts normalised, none of them empty.

        Returns
        -------
        list of float
            METEOR of the best reference, 0..1.

        Raises
        ------
        LineError
            If no process would answer a line, after `ATTEMPTS` tries or `RESTARTS` restarts.
        """
        if not lines:
            return []
        with self._lock:
            return self._score(lines)

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.process.kill()
        self._workers.clear()

    def _score(self, lines: Sequence[str]) -> list[float]:
        statistics = self._ask([f"SCORE ||| {line}" for line in lines], 1, _STATISTICS)
        new = {s: i for i, s in enumerate(statistics) if s not in self._scores}
        try:
            scores = self._ask([f"EVAL ||| {s}" for s in new], 2, _SCORE)
        except LineError as error:
            raise LineError(error.what, list(new.values())[error.index], error.todo) from error
        self._scores.update(zip(new, map(float, scores), strict=True))
        return [self._scores[s] for s in statistics]

    def _ask(self, lines: list[str], replies: int, form: re.Pattern[str]) -> list[str]:
        """Return the last of the `replies` replies to each line."""
        try:
            return self._drive(lines, replies, form)
        except BaseException:
            self.close()  # whatever is still in flight must not be taken for an answer to the next call
            raise

    def _drive(self, lines: list[str], replies: int, form: re.Pattern[str]) -> list[str]:
        answers: dict[int, str] = {}
        waiting = deque(range(len(lines)))
        blamed: Counter[int] = Counter()
        self._asked += len(lines)
        while len(self._workers) < min(self._processes, 1 + self._asked // LINES_PER_PROCESS):
            self._workers.append(self._start())
        window = max(4, min(_IN_FLIGHT, len(lines) // (2 * len(self._workers))))
        for worker in self._workers:
            worker.last = time.monotonic()
            self._top_up(worker, lines, waiting, window)
        while len(answers) < len(lines):
            worker, received = self._next()
            trouble = received if isinstance(received, str) else None
            for reply in received if isinstance(received, list) else ():
                trouble = self._take(worker, reply, replies, form, answers)
                if trouble:
                    break
            if trouble:
                self._replace(worker, trouble, waiting, blamed)
                worker = self._workers[-1]
            self._top_up(worker, lines, waiting, window)
        return [answers[i] for i in range(len(lines))]

    def _start(self) -> _Worker:
        worker = _Worker(LineProcess(self._command(), self._events))
        worker.process.send(["EVAL"])
        return worker

    def _top_up(self, worker: _Worker, lines: list[str], waiting: deque[int], window: int) -> None:
        if not waiting or len(worker.flight) > window // 2:
            return
        more = [waiting.popleft() for _ in range(min(window - len(worker.flight), len(waiting)))]
        worker.flight.extend(more)
        worker.process.send([lines[i] for i in more])

    def _next(self) -> tuple[_Worker, list[str] | str]:
        """Wait for lines of a busy process, or for what is wrong with it."""
        while True:
            oldest = min((w for w in self._workers if w.flight), key=lambda w: w.last)
            try:
                left = oldest.last + self._silence - time.monotonic()
                process, received = self._events.get(timeout=max(left, 0.0))
            except queue.Empty:
                return oldest, f"Java said nothing for {self._silence:g} s{oldest.process.complaint()}"
            for worker in self._workers:
                if worker.process is process:
                    worker.last = time.monotonic()
                    if received is None:
                        code = process.exit_code()
                        return worker, f"Java ended with exit code {code}{process.complaint()}"
                    return worker, received

    def _take(self, worker: _Worker, reply: str, replies: int, form: re.Pattern[str], answers: dict[int, str]) -> str:
        """Book one line; return what is wrong with it, if anything."""
        if not worker.ready:
            worker.ready = bool(_READY.match(reply))
            worker.noise += 1
            return "" if worker.ready or worker.noise <= _NOISE else f"Java said {reply[:80]!r}, which is not METEOR"
        if not worker.flight or form.fullmatch(reply) is None:
            return f"Java said {reply[:80]!r}, which is no answer"
        worker.replies.append(reply)
        if len(worker.replies) == replies:
            answers[worker.flight.popleft()] = reply
            worker.replies.clear()
        return ""

    def _replace(self, worker: _Worker, trouble: str, waiting: deque[int], blamed: Counter[int]) -> None:
        """End a process, put the lines it owed back to the front, and start another unless that is hopeless."""
        worker.process.kill()
        self._workers.remove(worker)
        waiting.extendleft(reversed(worker.flight))
        blamed[worker.flight[0] if worker.flight else -1] += 1
        ended = blamed.total()
        if waiting and (blamed[waiting[0]] >= ATTEMPTS or ended >= RESTARTS):
            if not worker.ready:
                raise LineError(f"METEOR does not start: {trouble}", waiting[0], _NO_START)
            here = f"{blamed[waiting[0]]} of {ended} processes that ended did so here"
            raise LineError(f"{trouble}; {here}", waiting[0], _AGAIN)
        self._workers.append(self._start())
