"""Stop words: function words of English that bags of words leave out, so that distances depend on content words.

The list was written for this project. It names closed word classes: articles, pronouns, prepositions, conjunctions,
auxiliary verbs, and adverbs of grammar rather than meaning. The words are spelled as PTB tokens: in lower case, with
`'s` separate. Numbers, `no` and `not` are not in the list, because captions differ by them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError
from relabel.core.parsing import read_text
from relabel.core.user_files import check_regular

NAMED = ("english", "none")
"""Names of the lists that need no file."""

_CLASSES = {
    "articles and determiners": "a an the this that these those each every either neither some any all both such "
    "another other others own same what which whose",
    "pronouns": "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself "
    "she her hers herself it its itself they them their theirs themselves who whom there something anything",
    "prepositions and particles": "of in on at by for with from to into onto upon about above across after against "
    "along among amongst around as before behind below beneath beside besides between beyond down during except "
    "inside like near off out outside over past per since than through throughout toward towards under underneath "
    "until up via while within without next",
    "conjunctions": "and or but nor so yet if because although though unless whether when where how why whereas",
    "auxiliary verbs": "am is are was were be been being do does did doing done have has had having can could may "
    "might must shall should will would ought let",
    "clitics": "'s 's' 're 've 'll 'd 'm s t ll ve re d m",
    "adverbs of grammar": "also just only very too then here again ever even still quite rather almost already",
}
ENGLISH = frozenset(word for words in _CLASSES.values() for word in words.split())
"""Words of the list `english`."""


@dataclass(frozen=True)
class StopWords:
    """List of words that are left out of bags.

    Attributes
    ----------
    name : str
        `english`, `none`, or the name of the file with the words.
    words : frozenset of str
        In lower case.

    Examples
    --------
    >>> from relabel.sources.wmd.stop_words import StopWords
    >>> stop_words = StopWords.of("english")
    >>> [word for word in "A man on the horse".split() if word not in stop_words]
    ['man', 'horse']
    """

    name: str
    words: frozenset[str]

    @classmethod
    def of(cls, named: str) -> StopWords:
        """Return the list `english`, the empty list `none`, or the words of a file.

        Parameters
        ----------
        named : str
            `english`, `none`, or the path of a text file with one word per line.

        Raises
        ------
        MissingError
            If there is no such file.
        CheckError
            If it is not UTF-8, or a line has several words; names the line.
        """
        if named in NAMED:
            return cls(named, ENGLISH if named == "english" else frozenset())
        path = Path(named)
        check_regular(path, "no file of stop words", "Use english, none, or a text file with one word per line.")
        lines = read_text(path).splitlines()
        for number, line in enumerate(lines, 1):
            if len(line.split()) > 1:
                message = f"expected one word, found {line!r}"
                raise CheckError(message, where=f"{path}, line {number}", todo="Write one word per line.")
        return cls(path.name, frozenset(line.strip().lower() for line in lines if line.strip()))

    def semantic(self) -> dict[str, Any]:
        """Return the entry of a fingerprint: name, number of words and sha256 of the sorted words."""
        digest = hashlib.sha256("\n".join(sorted(self.words)).encode()).hexdigest()
        return {"name": self.name, "words": len(self.words), "sha256": digest}

    def __contains__(self, word: str) -> bool:
        return word.lower() in self.words
