"""Commands of README.md, read from its blocks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
PROGRAMS = ("relabel", "make", "pip", "dvc", "python")


def commands() -> list[str]:
    """Return every command of README's blocks that begins with one of `PROGRAMS`, without its comment."""
    text = README.read_text(encoding="utf-8")
    found = []
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if language not in ("", "sh", "bash", "console"):
            continue
        lines = re.sub(r"\\\n\s*", "", body).splitlines()
        found += [shlex.join(shlex.split(line, comments=True)) for line in lines if line.split(" ")[0] in PROGRAMS]
    return found


def words(command: str) -> list[str]:
    """Return the arguments of a `relabel` command."""
    return shlex.split(command)[1:]
