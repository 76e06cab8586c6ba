"""Tokenizers: `lower_split`, and PTB with the settings of pycocoevalcap.

PTB tokens are Penn Treebank tokens by Stanford CoreNLP 3.4.1 with `-preserveLines -lowerCase`. It runs in Java from the
jar inside pycocoevalcap, and the punctuation that pycocoevalcap drops is removed. There is one difference: the tokens
of a caption depend on that caption alone. They differ from pycocoevalcap's for 5 of COCO's 616,767 captions and 3 of
Flickr30K's 155,070, all of them for this reason.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from relabel.core.errors import PartialError
from relabel.core.java import JavaError, LineFilter, find_jar, java_command

Tokenizer = Literal["ptb", "lower_split"]

PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
"""Tokens that pycocoevalcap drops. As there, brackets stay: in lower case they read `-lrb-`, which is not listed."""

CHUNK = 100_000
SILENCE = 600.0
"""Seconds that the tokenizer may take for a chunk: twenty times what an idle core takes."""
_JAR = "tokenizer/stanford-corenlp-3.4.1.jar"
_MAIN = "edu.stanford.nlp.process.PTBTokenizer"
# CoreNLP looks past the end of a line: whether the full stop in "... the letter S." is a token depends on the first
# word of the next line. Every caption is therefore followed by the same line, which starts as most captions do.
_NEXT, _NEXT_TOKEN = "A", "a"
# Java's buffers hold back 16 KiB.
_PUSH = ["A" * 100] * 170


def lower_split(text: str) -> list[str]:
    """Convert a text to lower case and split it at white space, as SAM's evaluation code does."""
    return text.lower().split()


def lower_tokens(texts: Iterable[str]) -> list[str]:
    """Return the words of each text by `lower_split`, joined by one space as `tokenize` does."""
    return [" ".join(lower_split(text)) for text in texts]


def split_words(text: str, tokenizer: Tokenizer) -> list[str]:
    """Split one text into words, at any white space between PTB tokens."""
    return lower_split(text) if tokenizer == "lower_split" else tokenize_text(text).split()


def tokenize(texts: Sequence[str], run: LineFilter | None = None) -> list[str]:
    """Tokenise captions with PTB.

    `texts`: N captions as written. Line separators and control characters count as spaces. `run`: a `ptb_filter`; by
    default, the program ends with the call. Returns list of str: N strings of tokens joined by one space; empty for a
    caption of punctuation only. A token may contain U+00A0 (phone numbers do), so split at " " only.
    """
    lines = [one_line(text) for text in texts]
    # Each distinct text is tokenised once. An empty line would not come back from Java.
    distinct = list(dict.fromkeys(line for line in lines if line))
    if not distinct:
        return [""] * len(lines)
    ask = run or LineFilter(_command)
    tokens = {"": ""}
    for a in range(0, len(distinct), CHUNK):
        part = distinct[a : a + CHUNK]
        try:
            tokens |= zip(part, _tokenized(ask, part), strict=True)
        except JavaError as error:
            todo = "Run it again; if it fails there again, use tokenizer `lower_split`."
            where = f"captions from {part[0]!r}"
            raise PartialError(f"the PTB tokenizer fails: {error.problem}", where=where, todo=todo) from error
    return [tokens[line] for line in lines]


def ptb_filter() -> LineFilter:
    """Return the tokenizer's program, which stays for the next few captions."""
    return LineFilter(_command, _PUSH)


@lru_cache(maxsize=1)
def tokenize_text(text: str) -> str:
    """Tokenise one text with PTB. The tokens of the last text are kept, for further labels that score the same text."""
    return tokenize([text])[0]


def one_line(text: str) -> str:
    r"""Replace line separators, control characters and lone surrogates, which end lines or break pipes, by spaces."""
    return text.translate(_blank()).strip()


@lru_cache(maxsize=1)
def _blank() -> dict[int, str]:
    return {c: " " for c in range(0x10000) if unicodedata.category(chr(c)) in ("Cc", "Zl", "Zp", "Cs")}


def _command() -> list[str]:
    options = ("-XX:TieredStopAtLevel=1", "-cp", find_jar(_JAR))
    return java_command(*options, _MAIN, "-preserveLines", "-lowerCase", "-encoding", "UTF-8")


def _tokenized(ask: LineFilter, captions: Sequence[str]) -> list[str]:
    """Run the tokenizer on captions, with a line between them."""
    output = ask([line for caption in captions for line in (caption, _NEXT)], SILENCE)
    # The count alone would not show that one line was split and another lost.
    if len(output) != 2 * len(captions) or set(output[1::2]) != {_NEXT_TOKEN}:
        raise JavaError(f"{2 * len(captions):,} lines went in, and the {len(output):,} that came out are not those")
    return [" ".join(t for t in line.rstrip().split(" ") if t not in PUNCTUATION) for line in output[::2]]
