"""Tokenizers: `lower_split`, and PTB with the settings of pycocoevalcap.

PTB tokens are Penn Treebank tokens by Stanford CoreNLP 3.4.1 with `-preserveLines -lowerCase`. It runs in Java from the
jar inside pycocoevalcap, and the punctuation that pycocoevalcap drops is removed. Unlike pycocoevalcap's, the tokens of
a caption do not depend on the captions around it. For this reason they differ for 5 of COCO's 616,767 captions and 3 of
Flickr30K's 155,070.
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
"""Tokens that pycocoevalcap drops. Brackets stay, as in pycocoevalcap: in lower case they are `-lrb-`, not listed."""

CHUNK = 100_000
SILENCE = 600.0
"""Timeout of the tokenizer for one chunk, in seconds: twenty times the time on an idle core."""
_JAR = "tokenizer/stanford-corenlp-3.4.1.jar"
_MAIN = "edu.stanford.nlp.process.PTBTokenizer"
# CoreNLP looks past the end of a line: the first word of the next line decides if the full stop in "... the letter S."
# is a token. So every caption is followed by the same line, which starts with the first word of many captions.
_NEXT, _NEXT_TOKEN = "A", "a"
# Padding that pushes the output through Java's buffers of 16 KiB.
_PUSH = ["A" * 100] * 170


def lower_split(text: str) -> list[str]:
    """Convert a text to lower case and split it at white space, as in SAM's evaluation code."""
    return text.lower().split()


def lower_tokens(texts: Iterable[str]) -> list[str]:
    """Apply `lower_split` to each text and join its words with single spaces, the format of `tokenize`."""
    return [" ".join(lower_split(text)) for text in texts]


def split_words(text: str, tokenizer: Tokenizer) -> list[str]:
    """Split one text into words. PTB tokens are split at any white space."""
    return lower_split(text) if tokenizer == "lower_split" else tokenize_text(text).split()


def tokenize(texts: Sequence[str], run: LineFilter | None = None) -> list[str]:
    """Tokenise captions with PTB.

    `texts`: N captions. Line separators and control characters count as spaces. `run`: a running `ptb_filter`; by
    default, one is started and ended by this call. Returns N strings of tokens joined by single spaces; a caption of
    punctuation gives an empty string. Tokens may contain U+00A0, for example in phone numbers, so split at " " only.
    """
    lines = [one_line(text) for text in texts]
    # Java returns nothing for an empty line.
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
            hint = "Run the command again. If it fails at the same caption, use the tokenizer `lower_split`."
            where = f"captions from {part[0]!r}"
            raise PartialError(f"the PTB tokenizer failed: {error.problem}", where=where, hint=hint) from error
    return [tokens[line] for line in lines]


def ptb_filter() -> LineFilter:
    """Return a tokenizer process that is kept for the next captions."""
    return LineFilter(_command, _PUSH)


@lru_cache(maxsize=1)
def tokenize_text(text: str) -> str:
    """Tokenise one text with PTB. The result is cached, because several labels may score the same text."""
    return tokenize([text])[0]


def one_line(text: str) -> str:
    r"""Replace by spaces the characters that end lines or break pipes: line separators, controls, lone surrogates."""
    return text.translate(_blank()).strip()


@lru_cache(maxsize=1)
def _blank() -> dict[int, str]:
    return {c: " " for c in range(0x10000) if unicodedata.category(chr(c)) in ("Cc", "Zl", "Zp", "Cs")}


def _command() -> list[str]:
    options = ("-XX:TieredStopAtLevel=1", "-cp", find_jar(_JAR))
    return java_command(*options, _MAIN, "-preserveLines", "-lowerCase", "-encoding", "UTF-8")


def _tokenized(ask: LineFilter, captions: Sequence[str]) -> list[str]:
    """Run the tokenizer on captions, each followed by the fixed line."""
    output = ask([line for caption in captions for line in (caption, _NEXT)], SILENCE)
    # The number of lines may be right by accident, if one line was split and another lost.
    if len(output) != 2 * len(captions) or set(output[1::2]) != {_NEXT_TOKEN}:
        raise JavaError(f"the {len(output):,} lines of output do not match the {2 * len(captions):,} lines of input")
    return [" ".join(t for t in line.rstrip().split(" ") if t not in PUNCTUATION) for line in output[::2]]
