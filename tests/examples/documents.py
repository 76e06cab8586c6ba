"""Pages of the documentation, and the code blocks and commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("relabel", "make", "pip", "dvc", "python")
SHELLS = ("", "sh", "bash", "shell", "console")

_BLOCK = re.compile(
    r"(?:^<!--\s*not run:\s*(?P<reason>.*?)\s*-->\s*\n)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```\s*$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes
    ----------
    page : str
        Path of the page in the checkout.
    line : int
        Line of the page on which the text begins.
    language : str
    text : str
    reason : str or None
        Reason of a preceding `<!-- not run: REASON -->`.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str | None


WRITTEN = ("docs/api.md", "docs/reference.md")
"""Pages that are made of the code, whose examples the doctests run."""


def pages() -> list[str]:
    """Return the paths of README.md and of all pages of docs/ that a person has written."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [name for file in files if (name := str(file.relative_to(ROOT))) not in WRITTEN]


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    body = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, body.count("\n", 0, match.start("text")) + 1, match["language"], match["text"], match["reason"])
        for match in _BLOCK.finditer(body)
    ]


def python_blocks(page: str) -> list[Block]:
    """Return the Python blocks of a page, in order."""
    return [block for block in blocks(page) if block.language in ("python", "py")]


def commands_of(block: Block) -> list[str]:
    """Return the commands of a shell block that begin with one of `PROGRAMS`, without comments."""
    if block.language not in SHELLS:
        return []
    lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
    return [shlex.join(shlex.split(line, comments=True)) for line in lines if line.split(" ")[0] in PROGRAMS]


def commands() -> dict[str, bool]:
    """Return every command of every page, in order, and whether it is marked as not run."""
    marked: dict[str, bool] = {}
    for page in pages():
        for block in blocks(page):
            for command in commands_of(block):
                marked[command] = marked.get(command, False) or block.reason is not None
    return marked


def words(command: str) -> list[str]:
    """Return the arguments of a `relabel` command."""
    return shlex.split(command)[1:]
