"""Words of tuples, and the WordNet synonym sets that SPICE assigns to them from METEOR's tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.numeric.csr import indptr_of
from relabel.sources.wordnet import find_base_form, read_wordnet

_TRIMMED = "".join(map(chr, range(33)))  # characters that Java's `trim` removes


def words_table(words: Iterable[str], jar: Path) -> pa.Table:
    """Look up the synonym sets of words.

    The sets of a word are its own and those of its base forms. Base forms are listed in METEOR's table of exceptions,
    or else derived from the word's ending. The words of a phrase are joined by `_`, as in WordNet.

    Parameters
    ----------
    words : iterable of str
        Repeats allowed.
    jar : Path
        METEOR's jar.

    Returns
    -------
    pyarrow.Table
        word string, ascending; synsets list<int32>, WordNet's numbers, ascending.
    """
    sets, bases = read_wordnet(jar)
    distinct = sorted(set(words))
    synsets = []
    for word in distinct:
        key = word.strip(_TRIMMED).lower().replace(" ", "_")
        forms = (key, *(bases.get(key) or [find_base_form(key, sets)]))
        synsets.append(sorted({int(s) for form in forms for s in sets.get(form, ())}))
    return pa.table({"word": pa.array(distinct, pa.string()), "synsets": pa.array(synsets, pa.list_(pa.int32()))})


def spelled(tuples: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int8], pa.ChunkedArray]:
    """Split the tuples of captions into words.

    Parameters
    ----------
    tuples : list<list<string>>
        One list per caption, null if it failed. A tuple is (object), (object, attribute) or (subject, object,
        relation).

    Returns
    -------
    start : (N + 1,) int64
        The tuples of caption i are ``start[i]:start[i + 1]``.
    sizes : (T,) int8
        Number of words of each tuple, 1 to 3.
    words : (sum of sizes,) string
        Words as SPICE compares them: a leading `be ` of a relation is removed.

    Raises
    ------
    CheckError
        If a tuple has no word, more than three, or a null.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from relabel.sources.spice.synonyms import spelled
    >>> captions = [[["man"], ["horse", "brown"], ["man", "horse", "be on"]], []]
    >>> start, sizes, words = spelled(pa.chunked_array([pa.array(captions)]))
    >>> start, sizes
    (array([0, 3, 3]), array([1, 2, 3], dtype=int8))
    >>> words.to_pylist()
    ['man', 'horse', 'brown', 'man', 'horse', 'on']
    """
    held = pc.fill_null(pc.list_value_length(tuples), 0).to_numpy()
    each = pc.list_flatten(tuples)
    sizes = pc.fill_null(pc.list_value_length(each), 0).to_numpy().astype(np.int8)
    words = pc.list_flatten(each)
    if (len(sizes) and not 1 <= sizes.min() <= sizes.max() <= 3) or words.null_count:
        raise CheckError("a scene-graph tuple does not have one to three words", todo="Encode the label again.")
    # The relation is the last word of a tuple of three.
    relation = np.zeros(len(words), np.bool_)
    relation[np.cumsum(sizes, dtype=np.int64)[sizes == 3] - 1] = True
    bare = pc.replace_substring_regex(words, pattern="^be ", replacement="")
    return indptr_of(held), sizes, pc.if_else(pa.array(relation), bare, words)
