"""A helper that acts as soon as a run has written a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def once_there(file: Path, act: Callable[[], None]) -> Iterator[None]:
    """Act as soon as a file exists."""

    def wait() -> None:
        while not file.exists():
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield
    thread.join(10)
