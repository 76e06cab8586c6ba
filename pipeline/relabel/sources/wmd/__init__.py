"""Source `wmd`: exact word mover's distance between captions, with any GloVe or word2vec text file.

A caption is a normalised bag of its words. The distance of two captions is the minimum total cost of moving the mass of
one caption's words to the other's. The cost is the Euclidean distance of word vectors. The definition is by Kusner,
Sun, Kolkin, Weinberger, "From Word Embeddings to Document Distances", ICML 2015. As in the paper, words without a
vector and stop words are left out. Sets of captions have the set distance of Kim et al., "Deep Metric Learning Beyond
Binary Supervision", CVPR 2019, eq. 13.

Relevance is 1 - d / reach, in [0, 1] (see `WmdRelevance`; its method `distances` returns d). A caption without any word
vector has an infinite distance to every caption, including itself, and relevance 0.

The vectors of all words are part of an encoding, so it can be opened without the file of word vectors. The list of stop
words was written for this project. It contains closed word classes, spelled as PTB tokens: in lower case, with `'s`
separate. It does not contain numbers, `no` and `not`, because they change the content of a caption.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.numeric.csr import indptr_of
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.tokenizers import Tokenizer, split_words
from relabel.sources.base import Encoding, Source, SourceSpec
from relabel.sources.cosine import vectors_from_table
from relabel.sources.scripts import warn_unspaced
from relabel.sources.shards import Shards
from relabel.sources.wmd.distance import Bags
from relabel.sources.wmd.relevance import WmdRelevance, reach_of
from relabel.sources.words.params import WordVectorParams
from relabel.sources.words.shards import VECTORS_FILE, WordBags, count_words, record_oov, record_vectors, vectors_step
from relabel.sources.words.vectors import WordVectors, look_up
from relabel.store.manifest import Manifest, read_parts
from relabel.store.workdir import Steps, Work

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
STOP_WORDS = frozenset(word for words in _CLASSES.values() for word in words.split())
"""English function words. They are excluded from bags of words."""


class WmdParams(WordVectorParams):
    """Parameters of wmd."""

    source: Literal["wmd"] = "wmd"
    pooling: Pooling = Field(
        "max",
        description="Pooling of the distances of an image's references: max takes the minimum distance (maximum "
        "relevance); set is the set distance of the log-ratio paper.",
    )
    tokenizer: Tokenizer = Field("ptb", description="ptb or lower_split.")


class Wmd(Source[WmdParams]):
    """Word mover's distance."""

    spec = SourceSpec(name="wmd", kind="pairs", bounds=(0.0, 1.0), symmetric=True, params=WmdParams)

    @override
    def tokenizer(self) -> str | None:
        return "ptb" if self.params.tokenizer == "ptb" else None

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        return {
            **self.params.model_dump(include={"source", "tokenizer"}),
            "vectors": self.params.file_fingerprint(runtime.data),
        }

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the steps of the vectors of all words, and of shards of bags of words.

        Columns of shards: row int32, words and counts list<int32>. Words are ascending row numbers of `VECTORS_FILE`.
        """
        p, shards = self.params, Shards(corpus, rows, rows_per_shard)
        file = p.find_file(runtime.data)
        warn_unspaced(shards, work)
        numbers = cache(partial(_read_word_numbers, work.folder))

        def split(part: range) -> WordBags:
            return WordBags.from_texts(corpus.words(p.tokenizer, part))

        counted = cache(partial(count_words, shards, split))

        def vectors() -> WordVectors:
            wanted = [word for word in counted() if word not in STOP_WORDS]
            read = look_up(file, wanted, runtime)
            if not read.index:
                examples = ", ".join(repr(word) for word in wanted[:3])
                detail = f"looked up {len(wanted):,} words, such as {examples}" if wanted else "all are stop words"
                message = f"no word of these captions has a vector: {detail}"
                hint = "Use vectors of the captions' language, with words spelled like tokens (lower case for ptb)."
                raise CheckError(message, where=file.where, hint=hint)
            return read

        def make_shard(part: range) -> pa.Table:
            bags = split(part)
            line = np.array([numbers().get(w, -1) for w in bags.vocabulary], np.int64)
            indptr, ids, counts = count_ids(bags.indptr, line[bags.words])
            offsets, row = pa.array(indptr.astype(np.int32)), np.arange(part.start, part.stop, dtype=np.int32)
            lists = {
                name: pa.ListArray.from_arrays(offsets, pa.array(values.astype(np.int32)))
                for name, values in (("words", ids), ("counts", counts))
            }
            # One list per distinct text, repeated for its captions.
            return pa.table(lists).take(pa.array(bags.text_of)).add_column(0, "row", pa.array(row))

        yield vectors_step(file, vectors)
        yield shards.step(f"bags of words ({file.name})", make_shard)
        empty = sum(int((pc.list_value_length(c).to_numpy() == 0).sum()) for c in shards.read_column(work, "words"))
        counts, table = counted(), record_vectors(work, file, p.tokenizer)
        left_out = {word: count for word, count in counts.items() if word in STOP_WORDS}
        content = Counter({word: count for word, count in counts.items() if word not in left_out})
        work.metadata |= {
            "reach": reach_of(vectors_from_table(table)),
            "vocabulary": len(table),
            "stop_words": {"tokens": sum(left_out.values()), "words": len(left_out)},
        }
        record_oov(work, content, set(table["word"].to_pylist()), empty)

    @override
    def open(self, encoding: Encoding) -> WmdRelevance:
        """Open an encoding. The file of word vectors is only needed for new texts."""
        table = read_parts(encoding.folder, encoding.manifest, ["words", "counts"])
        indptr = indptr_of(pc.list_value_length(table["words"]).to_numpy())
        words, counts = (pc.list_flatten(table[name]).to_numpy() for name in ("words", "counts"))
        return WmdRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            bags=Bags.of(indptr, words, counts),
            vectors=vectors_from_table(pq.read_table(encoding.folder / VECTORS_FILE)),
            encode_text=_TextEncoder(self.params, encoding.manifest, encoding.runtime, encoding.folder),
            threads=encoding.runtime.threads,
        )


@dataclass(frozen=True)
class _TextEncoder:
    """Encoder of new texts (see `WmdRelevance.encode_text`).

    New words are looked up in the file of word vectors of the encoding.
    """

    params: WmdParams
    manifest: Manifest
    runtime: Runtime
    folder: Path

    def __call__(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Return the numbers of a text's words, their counts, and the vectors of new words."""
        counts = Counter(word for word in split_words(text, self.params.tokenizer) if word not in STOP_WORDS)
        vectors, number = np.empty((0, int(self.manifest.metadata["width"])), np.float32), self._index
        if new := sorted(counts.keys() - number.keys()):
            # New words are numbered after the words of the encoding. Words without a vector are left out.
            file = self.params.find_file(self.runtime.data, self.manifest)
            table = look_up(file, new, self.runtime)
            vectors, number = table.vectors, number | {word: len(number) + i for word, i in table.index.items()}
        entries = sorted((number[word], count) for word, count in counts.items() if word in number)
        ids, occurrences = np.array(entries, np.int64).reshape(-1, 2).T
        return ids, occurrences, vectors

    @cached_property
    def _index(self) -> dict[str, int]:
        """Number of each word of the encoding, read for the first new text."""
        return _read_word_numbers(self.folder)


def _read_word_numbers(folder: Path) -> dict[str, int]:
    """Return the row number of each word in the table of vectors."""
    words = pq.read_table(folder / VECTORS_FILE, columns=["word"])["word"].to_pylist()
    return {word: i for i, word in enumerate(words)}


def count_ids(indptr: NDArray[Any], words: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Count the distinct words of each text, ignoring negative words.

    `indptr`: (N + 1,) int. `words`: (indptr[-1],) int64; words of text n at ``indptr[n]:indptr[n + 1]``, with repeats.
    Returns `indptr, words, counts`, (N + 1,), (T,) and (T,) int64, with ascending words in each text.
    """
    text = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[words >= 0]
    base = int(words.max(initial=0)) + 1
    keys, counts = np.unique(text * base + words[words >= 0], return_counts=True)
    bounds = np.searchsorted(keys, np.arange(len(indptr)) * base)
    return bounds.astype(np.int64), keys % base, counts.astype(np.int64)
