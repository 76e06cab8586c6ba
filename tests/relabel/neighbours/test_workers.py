"""Contract: workers build the same table as this process, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from relabel import stages

pytest.importorskip("distributed")


@pytest.mark.slow
def test_two_workers_make_the_same_table(dataset: Any, make_lines: Any, read_files: Any) -> None:
    lines, label = make_lines(30, "train"), "cider"
    job = stages.neighbours(dataset.encoded(lines, labels=[label]), label)
    job.run()
    alone = read_files(job.out)
    job.out.rename("elsewhere")
    assert stages.neighbours(dataset.project(workers=2), label).run()[1]
    assert read_files(job.out) == alone
