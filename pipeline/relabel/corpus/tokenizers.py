"""Tokenizers: `lower_split`, and PTB as pycocoevalcap runs it.

PTB: Penn Treebank tokens by Stanford's CoreNLP 3.4.1 with `-preserveLines -lowerCase`, run in Java from the jar inside
pycocoevalcap, without the punctuation that pycocoevalcap drops. The one difference to pycocoevalcap is that the
tokens of a caption depend on that caption alone. The tokenizer looks past the end of a line: whether the full stop in
"... the letter S." is a token depends on the first word of the next caption. Here every caption is followed by the same
line, which starts as most captions do. (5 of COCO's 616,767 captions and 3 of Flickr30K's 155,070 come out differently,
all of that kind.)
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from relabel.core.errors import PartialError
from relabel.core.java import find_jar, java_command
from relabel.core.line_process import SILENCE, JavaError, SilentError, map_lines
from relabel.core.progress import SILENT
from relabel.core.runtime import Runtime

Tokenizer = Literal["ptb", "lower_split"]

PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
"""Tokens that pycocoevalcap drops. Brackets stay, as there: in lower case they read `-lrb-`, which is not listed."""

CHUNK = 100_000
_JAR = "tokenizer/stanford-corenlp-3.4.1.jar"
_MAIN = "edu.stanford.nlp.process.PTBTokenizer"
_NEXT, _NEXT_TOKEN = "A", "a"  # the line that follows every caption, and its token


def lower_split(text: str) -> list[str]:
    """Lower-case a text and split it at white space; punctuation stays with its word (SAM's evaluation code)."""
    return text.lower().split()


def tokenize(texts: Sequence[str], runtime: Runtime) -> list[str]:
    """Tokenise captions with PTB.

    Parameters
    ----------
    texts : sequence of str
        N captions as written. Line separators and control characters count as spaces.
    runtime : Runtime

    Returns
    -------
    list of str
        N strings of tokens joined by one space; empty where nothing but punctuation is left. A token may hold U+00A0
        (phone numbers do): split at " " alone.

    Raises
    ------
    MissingError
        Without Java or pycocoevalcap.
    PartialError
        If the tokenizer dies, hangs or gives a wrong number of lines; names the caption.
    """
    lines = [one_line(text) for text in texts]
    distinct = list(dict.fromkeys(line for line in lines if line))
    if not distinct:
        return [""] * len(lines)
    command = java_command(
        "-XX:TieredStopAtLevel=1", "-cp", find_jar(_JAR), _MAIN, "-preserveLines", "-lowerCase", "-encoding", "UTF-8"
    )
    tokens = {"": ""}
    progress = runtime.progress if len(distinct) > CHUNK else SILENT
    with progress.bar("PTB tokens", len(distinct), "captions") as bar:
        for a in range(0, len(distinct), CHUNK):
            part = distinct[a : a + CHUNK]
            try:
                tokens.update(zip(part, _robust(command, part, bar.advance), strict=True))
            except _Blame as blame:
                position = lines.index(blame.line)
                excerpt = blame.line if len(blame.line) <= 60 else f"{blame.line[:60]}..."
                raise PartialError(
                    f"the PTB tokenizer fails: {blame.reason}",
                    where=f"caption {position + 1:,} of {len(texts):,} ({excerpt!r}{blame.rest})",
                    todo="Run it again; if it fails there again, mend that caption or take tokenizer `lower_split`.",
                ) from blame
    return [tokens[line] for line in lines]


def one_line(text: str) -> str:
    """Replace line separators, control characters and lone surrogates, which end lines or break pipes, by spaces."""
    return text.translate(_blank()).strip()


@lru_cache(maxsize=1)
def _blank() -> dict[int, str]:
    return {c: " " for c in range(0x10000) if unicodedata.category(chr(c)) in ("Cc", "Zl", "Zp", "Cs")}


class _Blame(Exception):  # noqa: N818
    """A line that cannot be tokenised, with the reason and the number of other lines that may be the cause."""

    def __init__(self, line: str, reason: str, rest: str = "") -> None:
        super().__init__(line, reason)
        self.line, self.reason, self.rest = line, reason, rest


def _robust(command: Sequence[str], lines: list[str], done: Callable[[int], None]) -> list[str]:
    """Tokenise one chunk; on failure try again, then halve it until the line at fault stands alone."""
    try:
        tokens = _once(command, lines)
    except JavaError:
        try:
            tokens = _once(command, lines)
        except JavaError as error:
            if len(lines) == 1:
                raise _Blame(lines[0], error.problem) from error
            if isinstance(error, SilentError):
                raise _Blame(lines[0], error.problem, f", or one of the {len(lines) - 1:,} after it") from error
            try:
                _once(command, [_NEXT])
            except JavaError as always:
                raise _Blame(lines[0], f"{always.problem}, whatever the caption") from always
            half = len(lines) // 2
            return _robust(command, lines[:half], done) + _robust(command, lines[half:], done)
    done(len(lines))
    return tokens


def _once(command: Sequence[str], lines: list[str]) -> list[str]:
    fed = [line for caption in lines for line in (caption, _NEXT)]
    output = map_lines(command, fed, SILENCE)
    if len(output) != len(fed):
        raise JavaError(f"{len(fed):,} lines went in, {len(output):,} came out")
    if set(output[1::2]) != {_NEXT_TOKEN}:
        raise JavaError("the lines that came out are not those that went in")
    return [" ".join(t for t in line.rstrip().split(" ") if t not in PUNCTUATION) for line in output[::2]]
