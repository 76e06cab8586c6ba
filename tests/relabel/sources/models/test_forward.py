"""Contract: models that are loaded and freed in any order leave a process that no signal ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import faulthandler, gc, signal, subprocess, sys
from pathlib import Path
from relabel.core.runtime import Runtime
from relabel.sources.models.encoder import SentenceEncoder

signal.signal(signal.SIGCHLD, lambda *_: None)

def load():
    return SentenceEncoder(Path(sys.argv[1]), None, None, "float32", Runtime(device="cpu", threads=1))

first = load()
second = load()
del first
gc.collect()
del second
gc.collect()
subprocess.run([sys.executable, "-c", ""], check=True)
print("alive")
"""


def test_models_that_are_freed_in_another_order_break_no_signal(minilm: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT, str(minilm)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
