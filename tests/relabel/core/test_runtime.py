"""Contract: an amount of memory is parsed with its unit, and anything else is refused with an example. Freed memory is
returned to the system, so that the next stage can use it. A worker ends with its parent.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import psutil
import pyarrow as pa
import pytest

from relabel.core import runtime
from relabel.core.errors import UsageError
from relabel.core.runtime import MIN_MEMORY, parse_memory, release_memory, resident_bytes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4GiB", 4 << 30),
        ("512MiB", 512 << 20),
        ("4G", 4 << 30),
        ("4GB", 4_000_000_000),
        ("1.5 gib", 3 << 29),
        ("1TiB", 1 << 40),
        (str(MIN_MEMORY), MIN_MEMORY),
        (" 300000 KiB ", 300_000 << 10),
    ],
)
def test_amounts(text: str, found: int) -> None:
    assert parse_memory(text) == found


@pytest.mark.parametrize("text", ["", "GiB", "4 gigs", "-4GiB", "4GiBs", "inf", "nan", "1e9", "4,5GiB", "٤GiB"])
def test_invalid_amounts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="4GiB or 512MiB") as caught:
        parse_memory(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["0", "4", "255MiB"])
def test_too_little_memory_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="at least 256MiB"):
        parse_memory(text)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' allocators have no such call")
def test_freed_memory_leaves_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MIN_RELEASE", 0)
    release_memory()
    before = psutil.Process().memory_info().rss
    blocks = [b"x" * (60 << 10) + b"%d" % i for i in range(4000)]  # 240 MB in blocks below the size of mapped ones
    last = blocks[-1]
    table = pa.array(range(10_000_000))
    assert psutil.Process().memory_info().rss > before + (280 << 20)
    del blocks, table
    assert resident_bytes() < before + (64 << 20)
    assert last.endswith(b"3999")  # at the end of the heap, where it keeps the C library from returning memory


def test_a_worker_ends_when_its_parent_is_killed() -> None:
    program = """
        import time
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        from relabel.core.runtime import end_with_parent
        pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=end_with_parent)
        print(*pool.map(abs, range(2)), flush=True)  # starts the workers
        print(*pool._processes, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent:
        assert parent.stdout.readline() == "0 1\n"
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=60)
    for worker in alive:
        worker.kill()
    assert not alive
