"""Encoding of cbow: the words of each shard, the vectors of all words, shards of their means, and the index.

Words and their vectors are intermediate files. The file of word vectors is read once, by one worker.

The weighting of the released code of Ladder Loss takes the words of spaCy, with nouns counted twice (Zhou et al.,
"Ladder Loss for Coherent Visual-Semantic Embedding", AAAI 2020). The paper describes a plain mean. The code also tests
for stop words, without effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import MissingError, UsageError
from relabel.core.progress import Advance, Progress
from relabel.core.runtime import Device
from relabel.corpus import Corpus
from relabel.sources.cosine import StoredType, VectorTasks, make_vector_table, vectors_from_table
from relabel.sources.words.shards import (
    VECTORS_FILE,
    WordBags,
    WordTasks,
    coverage,
    make_vectors_table,
    vectors_of_words,
)
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.store.workdir import Work

_CAPTIONS = 8192  # captions per product, which bounds the memory for sums
NOUN_WEIGHT = 2.0
_UNUSED = ("parser", "ner", "lemmatizer", "senter")  # components that are excluded from loading


class CbowTasks(WordTasks, VectorTasks):
    """Work on an encoding of cbow.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Corpus rows to encode.
    rows_per_shard : int
    index : str or None
        Index factory string; None for no index.
    device : "auto", "cpu" or "cuda"
        Device that the index is built on.
    file : WordVectorsFile
    bags : callable
        Splits the captions of a range of rows into weighted words.
    stored : "float32" or "float16"
        Type of the stored values.
    tokenizer : str
        Name of the tokenizer in the manifest.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        index: str | None,
        device: Device,
        file: WordVectorsFile,
        bags: Callable[[range], WordBags],
        stored: StoredType,
        tokenizer: str,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard, index, device)
        self.configure(file, bags, tokenizer)
        self.stored = stored
        self._loaded: tuple[dict[str, int], NDArray[np.float32]] | None = None

    @override
    @property
    def title(self) -> str:
        """Title of the progress bar of the shards."""
        return f"mean word vectors ({self.file.name})"

    @override
    def look_up_vectors(self, counts: Counter[str]) -> pa.Table:
        """Read the vectors of the words that occur."""
        return make_vectors_table(read_word_vectors(self.file, counts))

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make the columns row and vector; the vector is zeros for a caption without a known word."""
        bags, (index, vectors) = self.read_shard_bags(work, rows), self._vectors(work)
        word_vectors = vectors_of_words(index, vectors, bags.vocabulary)
        unit = np.empty((len(rows), word_vectors.shape[1]), np.float32)
        # Sums are in float64, so they are computed for some captions at a time.
        for a in range(0, len(rows), _CAPTIONS):
            part = slice(a, min(a + _CAPTIONS, len(rows)))
            unit[part] = bags.unit_vectors(word_vectors, part)
            advance(part.stop - part.start)
        return make_vector_table(rows, unit, self.stored)

    def finish(self, work: Work) -> None:
        """Record the word vectors and the coverage in the manifest."""
        super().finish(work)
        zeros = 0
        for column in self.read_column(work, "vector"):
            # A vector of zeros marks a caption without a known word.
            zeros += int((~vectors_from_table(pa.table({"vector": column})).any(axis=1)).sum())
        counts = self.count_words(work)
        table = self.record_vectors(work)
        work.facts |= coverage(counts, set(table["word"].to_pylist()), zeros)
        # The vectors of words are needed only to make the shards.
        work.excluded.add(VECTORS_FILE)

    def _vectors(self, work: Work) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Return the row of each word and the vectors of all words, read once."""
        if self._loaded is None:
            table = pq.read_table(work.folder / VECTORS_FILE)
            self._loaded = {word: i for i, word in enumerate(table["word"].to_pylist())}, vectors_from_table(table)
        return self._loaded


@lru_cache(maxsize=1)
def load_tagger(model: str) -> Any:
    """Load a spaCy pipeline that tags parts of speech.

    Parameters
    ----------
    model : str
        Name of a spaCy model.

    Raises
    ------
    MissingError
        If spaCy or the model is not installed.
    UsageError
        If the model does not tag.
    """
    try:
        import spacy
    except ImportError:
        todo = "Run `pip install spacy`, or set `weighting: mean`."
        raise MissingError("weighting `ladder` needs spaCy", todo=todo) from None
    try:
        tagger = spacy.load(model, exclude=_UNUSED)
    except OSError:
        todo = f"Run `python -m spacy download {model}`, or set `weighting: mean`."
        raise MissingError(f"no spaCy model {model}", todo=todo) from None
    if not {"tagger", "morphologizer"} & set(tagger.pipe_names):
        raise UsageError(f"spaCy model {model} does not tag parts of speech", todo="Use en_core_web_sm, _md or _lg.")
    return tagger


def tagger_version(model: str) -> str:
    """Return model and library as a fingerprint needs them: `core_web_lg 3.8.0, spacy 3.8.16`."""
    tagger = load_tagger(model)
    import spacy

    return f"{tagger.meta['name']} {tagger.meta['version']}, spacy {spacy.__version__}"


def noun_weights(texts: Sequence[str], model: str, progress: Progress) -> Iterator[list[tuple[str, float]]]:
    """Yield the words of each text, lower-cased after tagging, with weight 2 if spaCy's `pos_` is NOUN, else 1.

    Parameters
    ----------
    texts : sequence of str
        Texts as written, because a tagger uses capitals and punctuation.
    model : str
        Name of a spaCy model.
    progress : Progress
    """
    tagger = load_tagger(model)
    with progress.bar(f"parts of speech ({model})", len(texts), "texts") as bar:
        for document in tagger.pipe(texts, batch_size=1000):
            bar.advance()
            yield [(t.lower_, NOUN_WEIGHT if t.pos_ == "NOUN" else 1.0) for t in document if not t.is_space]
