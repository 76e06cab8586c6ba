"""Words of tuples, and the WordNet synonym sets that SPICE gives them: those of METEOR's tables."""

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

_TRIMMED = "".join(map(chr, range(33)))  # what Java's trim takes away


def words_table(words: Iterable[str], jar: Path) -> pa.Table:
    """Look words up.

    A word's sets are its own and those of its base forms: METEOR's exceptions, else its endings. Of a phrase the words
    are joined by `_`, as WordNet writes them.

    Parameters
    ----------
    words : iterable of str
        Repeats allowed.
    jar : Path
        METEOR's.

    Returns
    -------
    pyarrow.Table
        word string, ascending; synsets list<int32>, WordNet's numbers, ascending.
    """
    sets, bases = read_wordnet(jar)
    distinct = sorted(set(words))
    found = []
    for word in distinct:
        key = word.strip(_TRIMMED).lower().replace(" ", "_")
        forms = (key, *(bases.get(key) or [find_base_form(key, sets)]))
        found.append(sorted({int(s) for form in forms for s in sets.get(form, ())}))
    return pa.table({"word": pa.array(distinct, pa.string()), "synsets": pa.array(found, pa.list_(pa.int32()))})


def spelled(tuples: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int8], pa.ChunkedArray]:
    """Take the tuples of captions apart.

    Parameters
    ----------
    tuples : list<list<string>>
        One list a caption, null where it failed; a tuple is (object), (object, attribute) or (subject, object,
        relation).

    Returns
    -------
    start : (N + 1,) int64
        The tuples of caption i are ``start[i]:start[i + 1]``.
    sizes : (T,) int8
        Words of each tuple, 1 to 3.
    words : (sum of sizes,) string
        As SPICE compares them: a relation loses a leading `be `.

    Raises
    ------
    CheckError
        If a tuple has another number of words, or lacks one.
    """
    held = pc.fill_null(pc.list_value_length(tuples), 0).to_numpy()
    each = pc.list_flatten(tuples)
    sizes = pc.fill_null(pc.list_value_length(each), 0).to_numpy().astype(np.int8)
    words = pc.list_flatten(each)
    if (len(sizes) and not 1 <= sizes.min() <= sizes.max() <= 3) or words.null_count:
        raise CheckError("a scene-graph tuple without one to three words", todo="Encode the label again.")
    relation = np.zeros(len(words), np.bool_)
    relation[np.cumsum(sizes, dtype=np.int64)[sizes == 3] - 1] = True
    bare = pc.replace_substring_regex(words, pattern="^be ", replacement="")
    return indptr_of(held), sizes, pc.if_else(pa.array(relation), bare, words)
