"""Contract: the options of every verb reach the runtime, and invalid values are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from relabel.core.errors import UsageError
from relabel_cli.global_options import GlobalOptions


def test_options_reach_the_runtime() -> None:
    runtime = GlobalOptions(memory="2GiB", workers=3, threads=5).runtime()
    assert (runtime.memory, runtime.workers, runtime.threads, runtime.scheduler) == (2 << 30, 3, 5, None)
    runtime = GlobalOptions(scheduler="tcp://here:8786").runtime()
    assert (runtime.memory, runtime.workers, runtime.scheduler) == (4 << 30, 0, "tcp://here:8786")


def test_invalid_values_are_refused() -> None:
    with pytest.raises(UsageError, match="not an amount of memory"):
        GlobalOptions(memory="much").runtime()
    with pytest.raises(UsageError, match="exclude each other"):
        GlobalOptions(workers=2, scheduler="tcp://here:8786").runtime()
    with pytest.raises(ValidationError):
        GlobalOptions(workers=-1)
