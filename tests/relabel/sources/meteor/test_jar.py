"""Contract: each distinct line is sent once, and answers belong to their lines. A program of METEOR that dies or loses
lines ends in an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.relabel.sources.meteor.fixtures import PROGRAMS

from relabel.core.errors import PartialError
from relabel.core.runtime import Runtime
from relabel.sources.meteor.jar import normalise, stem

pytestmark = pytest.mark.usefixtures("meteor_jar")


@pytest.mark.parametrize("kept", [None, {}])
def test_answers_belong_to_their_lines(
    fake_java: Callable[[str], Path], tmp_path: Path, kept: dict[str, object] | None
) -> None:
    log, runtime = tmp_path / "log", Runtime(kept=kept)
    fake_java(PROGRAMS.format(trouble=f"open({str(log)!r}, 'a').write(line)"))
    for _ in range(2):
        assert stem(["dogs", "cat", "", "dogs"], runtime) == ["dog", "cat", "", "dog"]
        assert normalise(["a\ndog ||| b", " ", "x  y"], runtime) == ["a dog b", "", "x y"]
    assert log.read_text().splitlines() == ["dogs", "cat", "a dog b", "x y"] * 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("if 'poison' in line: sys.exit(3)", "exit code 3"),
        ("if 'poison' in line: continue", "got 1 answers for 2 lines"),
    ],
)
def test_a_program_that_fails_is_named(fake_java: Callable[[str], Path], trouble: str, reason: str) -> None:
    fake_java(PROGRAMS.format(trouble=trouble))
    with pytest.raises(PartialError, match=f"Stemmer failed: .*{reason}") as raised:
        stem(["poison", "dog"], Runtime())
    assert raised.value.exit_code == 5
