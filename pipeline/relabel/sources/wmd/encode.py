"""Encoding of wmd: words of each shard, then the vectors of all words, then shards of bags of words that have a vector.

The vectors are part of the encoding, so opening it does not need the file of word vectors. Stop words are left out of
the bags, so that distances depend on content words. The English list was written for this project. It names closed
word classes: articles, pronouns, prepositions, conjunctions, auxiliary verbs, and adverbs of grammar rather than
meaning. The words are spelled as PTB tokens: in lower case, with `'s` separate. Numbers, `no` and `not` are not in the
list, because captions differ by them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.parsing import read_text
from relabel.core.progress import Advance
from relabel.core.user_files import check_regular
from relabel.corpus import Corpus
from relabel.sources.cosine import vectors_from_table
from relabel.sources.wmd.relevance import reach_of
from relabel.sources.words.shards import VECTORS_FILE, WordBags, WordTasks, coverage, make_vectors_table
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.store.workdir import Work

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
    >>> from relabel.sources.wmd.encode import StopWords
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


class WmdTasks(WordTasks):
    """Work on one encoding of wmd.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardTasks.
    file : WordVectorsFile
    bags : callable
        Splits the captions of a range of rows into words.
    stop_words : StopWords
    tokenizer : str
        Name of the tokenizer in the manifest.
    unit : bool
        Whether word vectors are scaled to length 1.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        file: WordVectorsFile,
        bags: Callable[[range], WordBags],
        stop_words: StopWords,
        tokenizer: str,
        unit: bool,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.configure(file, bags, tokenizer)
        self.stop_words, self.unit = stop_words, unit
        self._index: dict[str, int] | None = None

    @property
    @override
    def title(self) -> str:
        return f"bags of words ({self.file.name})"

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make one shard: row int32, words and counts list<int32>; words are lines of `VECTORS_FILE`, ascending."""
        bags = self.read_shard_bags(work, rows)
        if self._index is None:
            words = pq.read_table(work.folder / VECTORS_FILE, columns=["word"])["word"].to_pylist()
            self._index = {word: i for i, word in enumerate(words)}
        line = np.array([self._index.get(w, -1) for w in bags.vocabulary], np.int64)
        indptr, ids, counts = count_words(bags.indptr, line[bags.words])
        offsets = pa.array(indptr.astype(np.int32))
        return pa.table(
            {
                "row": np.arange(rows.start, rows.stop, dtype=np.int32),
                "words": pa.ListArray.from_arrays(offsets, pa.array(ids.astype(np.int32))),
                "counts": pa.ListArray.from_arrays(offsets, pa.array(counts.astype(np.int32))),
            }
        )

    @override
    def finish(self, work: Work) -> None:
        super().finish(work)
        empty = sum(int((pc.list_value_length(c).to_numpy() == 0).sum()) for c in self.read_column(work, "words"))
        counts = self.count_words(work)
        left_out = {word: count for word, count in counts.items() if word in self.stop_words}
        kept = Counter({word: count for word, count in counts.items() if word not in left_out})
        table = self.record_vectors(work)
        work.facts |= {
            "reach": reach_of(vectors_from_table(table)),
            "vocabulary": len(table),
            "stop_words": {"list": self.stop_words.name, "tokens": sum(left_out.values()), "words": len(left_out)},
            **coverage(kept, set(table["word"].to_pylist()), empty),
        }

    @override
    def look_up_vectors(self, counts: Counter[str]) -> pa.Table:
        """Look up the vectors of all words that are not stop words."""
        wanted = [word for word in counts if word not in self.stop_words]
        table = read_word_vectors(self.file, wanted)
        if not table.index:
            message = f"no word of these captions has a vector: {len(wanted):,} words looked up, such as "
            message += ", ".join(repr(word) for word in wanted[:3]) if wanted else "none, because all are stop words"
            todo = "Use vectors of the captions' language, spelled like the tokens (in lower case for ptb)."
            raise CheckError(message, where=self.file.where, todo=todo)
        return make_vectors_table(replace(table, vectors=scale_to_unit_length(table.vectors)) if self.unit else table)


def scale_to_unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale (V, D) vectors to length 1; vectors of zeros stay zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.wmd.encode import scale_to_unit_length
    >>> scale_to_unit_length(np.array([[3, 4], [0, 0]], np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0).astype(np.float32)
    return unit


def count_words(indptr: NDArray[Any], words: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Count the distinct words of each text; negative words are left out.

    Parameters
    ----------
    indptr : (N + 1,) int
    words : (indptr[-1],) int64
        Words of text n at ``indptr[n]:indptr[n + 1]``, with repeats.

    Returns
    -------
    indptr, words, counts : (N + 1,), (T,) and (T,) int64
        Words ascending within a text.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.wmd.encode import count_words
    >>> count_words(np.array([0, 4, 5]), np.array([7, 2, 7, -1, 2]))
    (array([0, 2, 3]), array([2, 7, 2]), array([1, 2, 1]))
    """
    text = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[words >= 0]
    base = int(words.max(initial=0)) + 1
    keys, counts = np.unique(text * base + words[words >= 0], return_counts=True)
    bounds = np.searchsorted(keys, np.arange(len(indptr)) * base)
    return bounds.astype(np.int64), keys % base, counts.astype(np.int64)
