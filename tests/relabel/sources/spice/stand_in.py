"""A stand-in for SPICE's parser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from relabel.sources.spice.parser import ParseFailure

Tuples = list[list[str]]


class RecordedParser:
    """Parser that looks up the tuples of a text, fails where there are none, and counts the texts that it is given."""

    def __init__(self, tuples_of: Callable[[str], Tuples | None]) -> None:
        self.tuples_of, self.requests = tuples_of, Counter[str]()

    def version(self) -> str:
        return "1"

    def parse(self, texts: Sequence[str], advance: Callable[[int], None] = lambda _: None) -> list[Any]:
        self.requests.update(texts)
        advance(len(texts))
        parses = [self.tuples_of(text) for text in texts]
        return [ParseFailure("it is odd") if each is None else each for each in parses]

    def close(self) -> None:
        pass


def words_parser(bad: Collection[str] = ()) -> RecordedParser:
    """Return a parser whose tuples are the words of a text; it fails on the texts in `bad`."""
    return RecordedParser(lambda text: None if text in bad else [[word, text[::-1]] for word in text.split()])
