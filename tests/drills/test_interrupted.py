"""Contract: Ctrl-C at any point of any stage is exit code 130 and one line. The stages then end with the bytes of
undisturbed ones.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from relabel_cli.main import LINE

READY = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from relabel_cli.main import exit_on_interrupt
exit_on_interrupt()
os.write(1, b"x")
"""


PLACES = re.compile(r"\S.*  \S+")
"""The lines with which `run` ends."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_stages_are_interrupted_and_end_with_the_same_bytes(
    full: Any, tmp_path: Path, budget: Any, tally: Any
) -> None:
    chance, folder, interrupted, target = random.Random(budget.seed), tmp_path / "project", 0, min(100, budget.kills)
    while interrupted < target:
        full.lay(folder)
        for stage in full.stages:
            code = None
            while code != 0:
                process = full.start(folder, (*stage, "--quiet"), READY)
                process.stdout.read(1)
                try:
                    _, stderr = process.communicate(timeout=chance.uniform(0, 1.2) * full.seconds[stage])
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGINT)
                    _, stderr = process.communicate(timeout=60)
                code = process.returncode
                assert code in (0, 130), stderr
                lines = [line for line in stderr.splitlines() if PLACES.fullmatch(line) is None]
                assert lines == ([LINE] if code else []), stderr
                interrupted += code != 0
        full.compare(folder)
    tally["interrupts", "Ctrl-C"] += interrupted
    assert interrupted >= target
