"""A process with all modules loaded that forks a child per run, which takes a stage tenths of a second instead of
seconds.

`python -m tests.drills.nursery IDS` reads one order per line of stdin (JSON) and answers each with one line.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import gc
import io
import json
import multiprocessing
import os
import random
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from relabel_cli.main import exit_on_interrupt, load_root, main

CALLS = ("fsync", "replace", "rename", "mkdir", "unlink", "remove", "rmdir", "open")
"""Calls through which a run changes the disk; of `open`, those that write."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_OUTPUT_LIMIT = 1 << 20  # bytes of output per run
_PIPE = 60_000  # bytes that fit into a pipe without a reader
_PATIENCE = 120.0  # seconds for Java and workers to notice the end of their parent


@dataclass(frozen=True)
class Fault:
    """A fault at one point of a run.

    Attributes
    ----------
    kind : "kill", "full" or "size"
        SIGKILL; ENOSPC at call `at` and all later ones; no file may grow beyond `at` bytes.
    at : int, optional
        Number of the call of CALLS.
    after : bool
        Whether the process is killed after the call instead of before it.
    seconds : float, optional
        Seconds after which the process is sent a signal, instead of a call.
    signal : int
    """

    kind: Literal["kill", "full", "size"]
    at: int | None = None
    after: bool = False
    seconds: float | None = None
    signal: int = signal.SIGKILL


@dataclass(frozen=True)
class RunResult:
    """Result of a run.

    Attributes
    ----------
    code : int
        Exit code, or minus the signal.
    output : str
        stdout and stderr.
    calls : int
        Calls of CALLS; of a killed run 0.
    seconds : float
    orphans : list of str
        Command lines of processes that outlived the run.
    """

    code: int
    output: str
    calls: int
    seconds: float
    orphans: list[str]


class Nursery:
    """Client of the process.

    Parameters
    ----------
    ids : Path
        JSON: ``{"caption": numbers, "image": numbers}`` of the COCO ids whose human scores are read; null for all.
    """

    def __init__(self, ids: Path) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("RELABEL_DATA", "RELABEL_MIRROR")}
        env |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        env |= {"TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-W", "ignore", "-m", "tests.drills.nursery", str(ids)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)

    def run(self, folder: Path, stage: Sequence[str], fault: Fault | None = None) -> RunResult:
        """Run `relabel STAGE` in a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"folder": str(folder), "stage": list(stage), "fault": fault and asdict(fault)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return RunResult(**json.loads(self._process.stdout.readline()))

    @property
    def pid(self) -> int:
        """Process id of the parent of all runs."""
        return self._process.pid

    def close(self) -> None:
        """Stop the process."""
        self._process.communicate()


def serve(ids: Path) -> None:
    """Answer orders until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    _warm_up(json.loads(ids.read_text(encoding="utf-8")))
    _load([])
    exit_on_interrupt()  # a child that has not begun yet ignores the signal
    for line in sys.stdin:
        order = json.loads(line)
        fault = Fault(**order["fault"]) if order["fault"] else None
        answers.write(json.dumps(asdict(_run(Path(order["folder"]), order["stage"], fault))) + "\n")
        answers.flush()


def _run(folder: Path, stage: list[str], fault: Fault | None) -> RunResult:
    (reading, writing), (log_reader, log) = os.pipe(), os.pipe()  # no file, since files may be limited in size
    fcntl.fcntl(log, fcntl.F_SETPIPE_SZ, _OUTPUT_LIMIT)
    os.set_blocking(log_reader, False)  # an orphan may keep the other end open
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(folder, stage, fault, log, writing)
    os.close(writing)
    os.close(log)
    handle = os.pidfd_open(child)
    waits = [(240.0, signal.SIGKILL)]
    if fault and fault.seconds is not None:
        waits = [(fault.seconds, fault.signal), (60.0, signal.SIGKILL)]
    for wait, number in waits:
        if not select.select([handle], [], [], wait)[0]:
            os.kill(child, number)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - started
    os.close(handle)
    with os.fdopen(reading) as pipe:
        calls, _, modules = pipe.read().partition("\n")
    _load(modules.split())
    output = b""
    with suppress(BlockingIOError):
        while part := os.read(log_reader, _OUTPUT_LIMIT):
            output += part
    os.close(log_reader)
    code = os.waitstatus_to_exitcode(status)
    return RunResult(code, output.decode(errors="replace"), int(calls or 0), seconds, _orphans())


def _load(modules: list[str]) -> None:
    """Load the modules that a child has loaded, so that later children need not."""
    for name in modules:
        with suppress(Exception):
            import_module(name)
    gc.collect()
    gc.freeze()  # garbage collection in a child would copy all pages


def _child(folder: Path, stage: list[str], fault: Fault | None, log: int, writing: int) -> None:
    code = 1
    try:
        os.chdir(folder)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        exit_on_interrupt()
        program, load = stage[0], load_root
        sys.argv = ["relabel", *stage]
        if program.startswith("experiments."):
            sys.argv, load = stage, lambda: import_module(f"{program}.__main__").app

        before, count = set(sys.modules), _watch(fault)
        try:
            main(load)
        finally:
            names = [name for name in sys.modules if name not in before]
            os.write(writing, "\n".join([str(count[0]), *names]).encode()[:_PIPE])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _watch(fault: Fault | None) -> list[int]:
    """Count the calls of CALLS, and raise the fault at its call."""
    count = [0]
    if fault is not None and fault.kind == "size":
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.at or 0, resource.RLIM_INFINITY))
        return count

    def patched(real: Callable[..., Any], writes: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not writes(*args, **kwargs):
                return real(*args, **kwargs)
            now, count[0] = count[0], count[0] + 1
            due = fault is not None and fault.at is not None and now >= fault.at
            if due and fault.kind == "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))
            if due and fault.after:
                real(*args, **kwargs)
            if due:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS[:-1]:
        setattr(os, name, patched(getattr(os, name)))
    writing = patched(io.open, _writes)
    io.open = builtins.open = writing
    return count


def _writes(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
    return not isinstance(file, int) and str(file) != os.devnull and any(letter in mode for letter in "wxa+")


def _orphans() -> list[str]:
    """Wait for the processes that a run started; return the command lines of the remaining ones, and end them."""
    import psutil

    until = time.monotonic() + _PATIENCE
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
            left = psutil.Process().children(recursive=True)
        except ChildProcessError:
            return []
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    lines = [" ".join(process.cmdline()) for process in left]
    for process in left:
        process.kill()
    return lines


def _warm_up(ids: dict[str, list[int]] | None) -> None:
    """Load the modules of the stages, and replace CoreNLP and the complete CxC by small stand-ins."""
    import accelerate  # noqa: F401
    import datasets  # noqa: F401
    import faiss
    import gensim.models  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pyarrow as pa
    import pyarrow.compute as pc
    import scipy.stats  # noqa: F401
    import sentence_transformers  # noqa: F401
    import sklearn.ensemble  # noqa: F401
    import torch
    import transformers  # noqa: F401

    import relabel_train.reference.fit  # noqa: F401
    from experiments.fit_table import trials as trial
    from relabel.datasets import cxc
    from relabel.datasets.evaluation_sets.stsb import FILES
    from relabel.sources.bert_sts import tune
    from relabel.sources.spice import parse_cache

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    read = cxc._read

    def few(task: Any, split: Any) -> Any:
        table = read(task, split)
        for side, kind in zip(("left", "right"), cxc.SIDES[task], strict=True):
            if ids is not None:
                table = table.filter(pc.is_in(table[side], pa.array(ids[kind], table[side].type)))
        return table

    cxc._read = few
    tune.find_stsb_files = lambda _: {split: Path(f"stsb-{split}.csv").absolute() for split in FILES}
    parse_cache.SpiceParser = RandomTuples  # type: ignore[assignment, misc]
    trial.get_context = lambda _: multiprocessing.get_context("fork")


class RandomTuples:
    """Parser for SPICE that draws the tuples of a caption from its words."""

    def __init__(self, *_: Any) -> None:
        pass

    def version(self) -> str:
        """Return a version that no parser has."""
        return "random"

    def parse(self, texts: Sequence[str], advance: Callable[[int], None] = lambda _: None) -> list[Any]:
        """Return tuples of one to three words per caption."""
        advance(len(texts))
        return [self._tuples(text) for text in texts]

    def close(self) -> None:
        """Do nothing."""

    def _tuples(self, text: str) -> list[list[str]]:
        words, chance = text.split() or ["a"], random.Random(text)
        return [[chance.choice(words) for _ in range(chance.randint(1, 3))] for _ in range(chance.randint(0, 4))]


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
    os._exit(0)  # skips destructors of C++ libraries that would report memory
