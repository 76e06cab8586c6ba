"""A process with all modules loaded that forks a child per run, which takes a stage tenths of a second instead of
seconds.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import errno
import fcntl
import gc
import io
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from relabel_cli.main import exit_on_interrupt, load_root, main

# Calls through which a run changes the disk; of `open`, those that write.
CALLS = ("fsync", "replace", "rename", "mkdir", "unlink", "remove", "rmdir")
# Modules that stages load, without which the first run of a stage would be slower than later ones.
MODULES = ("accelerate", "datasets", "faiss", "gensim.models", "matplotlib.pyplot", "scipy.stats", "sklearn.ensemble")
MODULES += ("sentence_transformers", "torch", "transformers", "relabel_train.reference.fit")
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "ARROW_IO_THREADS")
ENVIRONMENT = dict.fromkeys(ONE_THREAD, "1") | {"TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0"}
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_OUTPUT_LIMIT = 1 << 20  # bytes of output per run
_PIPE = 60_000  # bytes that fit into a pipe without a reader
_PATIENCE = 120.0  # seconds for Java and workers to notice the end of their parent


@dataclass(frozen=True)
class Fault:
    """A fault at one point of a run.

    `kind`: SIGKILL; ENOSPC at call `at` and all later ones; no file may grow beyond `at` bytes.
    `at`: number of the call of CALLS. `after`: whether the process is killed after the call instead of before it.
    `seconds`: after which the process is sent `signal`, instead of at a call.
    """

    kind: Literal["kill", "full", "size"]
    at: int | None = None
    after: bool = False
    seconds: float | None = None
    signal: int = signal.SIGKILL


@dataclass(frozen=True)
class RunResult:
    """Result of a run.

    `code`: exit code, or minus the signal. `output`: stdout and stderr.
    `calls`: calls of CALLS; of a killed run 0.
    `orphans`: command lines of processes that outlived the run.
    """

    code: int
    output: str
    calls: int
    seconds: float
    orphans: list[str]


Run = Callable[[Path, Sequence[str], Fault | None], RunResult]


@contextmanager
def nursery() -> Iterator[Run]:
    """Start the process; yield a function that runs `relabel STAGE` in a folder."""
    with ProcessPoolExecutor(1, get_context("spawn"), _warm_up) as pool:
        with patch.dict(os.environ, ENVIRONMENT | {"PYTHONWARNINGS": "ignore"}):
            for name in ("RELABEL_DATA", "RELABEL_MIRROR"):
                os.environ.pop(name, None)
            pool.submit(os.getpid).result()
        yield lambda *order: pool.submit(_run, *order).result()


def _run(folder: Path, stage: Sequence[str], fault: Fault | None) -> RunResult:
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


def _load(modules: Sequence[str]) -> None:
    """Load the modules that a child has loaded, so that later children need not."""
    for name in modules:
        with suppress(Exception):
            import_module(name)
    gc.collect()
    gc.freeze()  # garbage collection in a child would copy all pages


def _child(folder: Path, stage: Sequence[str], fault: Fault | None, log: int, writing: int) -> None:
    code = 1
    try:
        os.chdir(folder)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        exit_on_interrupt()
        load, sys.argv = load_root, ["relabel", *stage]
        if stage[0].startswith("experiments."):
            load, sys.argv = (lambda: import_module(f"{stage[0]}.__main__").app), list(stage)
        before, count = set(sys.modules), _watch(fault)
        try:
            main(load)
        finally:
            names = [name for name in sys.modules if name not in before]
            os.write(writing, "\n".join([str(count[0]), *names]).encode()[:_PIPE])
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
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.at or 0, resource.RLIM_INFINITY))
        return count

    def call(real: Callable[..., Any], writes: Callable[..., bool], *args: Any, **kwargs: Any) -> Any:
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

    for name in CALLS:
        setattr(os, name, partial(call, getattr(os, name), lambda *_, **__: True))
    io.open = builtins.open = partial(call, io.open, _writes)  # type: ignore[assignment]
    return count


def _writes(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
    return not isinstance(file, int) and str(file) != os.devnull and any(letter in mode for letter in "wxa+")


def _orphans() -> list[str]:
    """Wait for the processes that a run started; return the command lines of the remaining ones, and end them."""
    import psutil

    until = time.monotonic() + _PATIENCE
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
        left = psutil.Process().children(recursive=True)
        lines = [" ".join(process.cmdline()) for process in left]
        for process in left:
            process.kill()
        return lines
    return []


def _warm_up() -> None:
    """Load the modules of the stages, and replace CoreNLP and the complete CxC by small stand-ins."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    atexit.register(os._exit, 0)  # skips destructors of C++ libraries that would report memory
    import pyarrow as pa
    import pyarrow.compute as pc
    from tests.golden.today import StandInParser, words_as_tuples

    from experiments.fit_table import trials as trial
    from relabel.core import runtime
    from relabel.datasets import cxc
    from relabel.datasets.evaluation_sets.stsb import FILES
    from relabel.sources.bert_sts import tune
    from relabel.sources.spice import parse_cache

    read = cxc._read

    def few(task: Any, split: Any) -> Any:
        """Return the human scores of captions and images of the folder."""
        table = read(task, split)
        captions = [json.loads(line) for line in Path("captions.jsonl").read_text(encoding="utf-8").splitlines()]
        for side, kind in zip(("left", "right"), cxc.SIDES[task], strict=True):
            numbers = pa.array([int(one[f"{kind}_id"]) for one in captions], table[side].type)
            table = table.filter(pc.is_in(table[side], numbers))
        return table

    cxc._read = few
    runtime.ROWS_PER_SHARD = 90  # several tasks per stage
    tune.find_stsb_files = lambda _: {split: Path(f"stsb-{split}.csv").absolute() for split in FILES}
    parse_cache.SpiceParser = lambda *_: StandInParser(words_as_tuples)  # type: ignore[assignment, misc]
    trial.get_context = lambda _: get_context("fork")
    _load(MODULES)
    exit_on_interrupt()  # a child that has not begun yet ignores the signal
