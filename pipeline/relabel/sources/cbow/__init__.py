"""Source `cbow`: cosine of the mean word vectors of two captions, with any text file of GloVe or word2vec.

The mean is over all tokens. A token without a vector is skipped: counting it would change the length of the mean, but
not its direction. Ladder Loss (Zhou et al., AAAI 2020, section 4.1) computes labels from GloVe in this way, as does
GLUE's CBoW baseline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.tokenizers import Tokenizer, lower_split
from relabel.sources.base import OpenEncoding
from relabel.sources.cbow.encode import CbowTasks, noun_weights, tagger_version
from relabel.sources.cosine import StoredType, VectorRelevance, VectorSource, make_vector_spec, read_vectors
from relabel.sources.typical_cost import TypicalCost
from relabel.sources.words.params import WordVectorParams
from relabel.sources.words.shards import WordBags, vectors_of_words
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.store.manifest import Manifest


class CbowParams(WordVectorParams):
    """Parameters of cbow."""

    source: Literal["cbow"] = "cbow"
    pooling: Pooling = Field("max", description="Pooling of an image's references into one number.")
    weighting: Literal["mean", "ladder"] = Field(
        "mean", description="mean of all tokens; ladder: of spaCy's tokens, nouns twice, as its released code does."
    )
    tokenizer: Tokenizer = Field("ptb", description="ptb or lower_split; not used by weighting ladder.")
    tagger: str = Field("en_core_web_lg", description="spaCy model of weighting ladder.")
    stored: StoredType = Field("float32", description="Type of the stored vectors.")
    index: str | None = Field("Flat", description="faiss index factory string; null for no index.")


class Cbow(VectorSource[CbowParams]):
    """Cosine of mean word vectors."""

    spec = make_vector_spec("cbow", CbowParams, version=1)

    @override
    def tokenizer(self) -> str | None:
        return "ptb" if (self.params.weighting, self.params.tokenizer) == ("mean", "ptb") else None

    @override
    def typical_cost(self) -> TypicalCost | None:
        # Other files of word vectors have other widths, and weighting ladder needs a tagger.
        if not self.params.tuned_models() or self.params.weighting != "mean":
            return None
        # COCO's 25,010 test captions took 20.2 MB and, once, 2.6 s, with the 100 float32 of `relabel tune cbow`.
        return TypicalCost(encode_bytes=809, encode_seconds=2.6 / 25_010)

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the word vectors identified by their sha256."""
        params = self.params.model_dump(include={"source", "weighting", "stored", "index"})
        if self.params.weighting == "ladder":
            params["tagger"] = tagger_version(self.params.tagger)
        else:
            params["tokenizer"] = self.params.tokenizer
        return params | {"vectors": self.params.file_fingerprint(runtime.data)}

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> CbowTasks:
        """Divide the encoding into shards of unit vectors (see `make_vector_table`).

        A caption without a known word has a vector of zeros.

        Raises
        ------
        MissingError
            If the word vectors, or PTB tokens that the source needs, are missing.
        CheckError
            If the file of word vectors is malformed. The message names file and line.
        """
        p, file = self.params, self.params.find_file(runtime.data)

        def bags(part: range) -> WordBags:
            if self.tokenizer() == "ptb":
                corpus.ptb_tokens()
            tokens = None if corpus.table["tokens"].null_count else corpus.read("tokens", part)
            return self.split_words(corpus.read("text", part), runtime, tokens)

        tokenizer = p.tokenizer if p.weighting == "mean" else "spacy"
        return CbowTasks(corpus, rows, rows_per_shard, p.index, runtime.device, file, bags, p.stored, tokenizer)

    @override
    def open(self, encoding: OpenEncoding) -> VectorRelevance:
        """Open the vectors. The file of word vectors is read for new texts only."""
        return VectorRelevance(
            encoding.corpus,
            encoding.rows,
            self.params.pooling,
            read_vectors(encoding.folder, encoding.manifest),
            _TextEncoder(self, encoding.manifest, encoding.runtime),
        )

    def split_words(self, texts: list[str], runtime: Runtime, tokens: list[str] | None = None) -> WordBags:
        """Split texts into weighted words.

        Parameters
        ----------
        texts : list of str
            Texts as written.
        runtime : Runtime
        tokens : list of str, optional
            PTB tokens of each text, if they are known.

        Examples
        --------
        >>> from relabel.core.runtime import Runtime
        >>> from relabel.sources.cbow import Cbow, CbowParams
        >>> source = Cbow(CbowParams(tokenizer="lower_split"))
        >>> source.split_words(["A dog", "Two dogs"], Runtime()).vocabulary
        ['a', 'dog', 'two', 'dogs']
        """
        if self.params.weighting == "ladder":
            # Tagging is slow, so each distinct text is tagged once.
            distinct = list(dict.fromkeys(texts))
            number = {t: i for i, t in enumerate(distinct)}
            words = list(noun_weights(distinct, self.params.tagger, runtime.progress))
            return WordBags.from_weighted_words(words, np.array([number[t] for t in texts], np.int64))
        if self.params.tokenizer == "lower_split":
            return WordBags.from_texts([" ".join(lower_split(t)) for t in texts])
        if tokens is None:
            from relabel.corpus.tokenizers import tokenize

            tokens = tokenize(texts, runtime)
        return WordBags.from_texts(tokens)


@dataclass
class _TextEncoder:
    """Task vectors of new texts, from the encoding's file of word vectors.

    Attributes
    ----------
    source : Cbow
    manifest : Manifest
    runtime : Runtime
    word_vectors : dict of str to (D,) float64
        Vectors of the words that were looked up.
    file : WordVectorsFile or None
        The file, once it is found.
    """

    source: Cbow
    manifest: Manifest
    runtime: Runtime
    word_vectors: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    file: WordVectorsFile | None = None

    def __call__(self, text: str) -> NDArray[np.float32]:
        """Return the unit vector of a text, (D,) float32; zeros if no word is known."""
        # A terminal can pass surrogates, which are no valid text.
        typed = text.encode(errors="replace").decode()
        bags = self.source.split_words([typed], self.runtime)
        # A file has hundreds of thousands of lines, so only unseen words are looked up.
        new = [w for w in bags.vocabulary if w not in self.word_vectors]
        if new:
            self.word_vectors |= dict(zip(new, self._read_vectors(new), strict=True))
        width = int(self.manifest.facts["width"])
        vectors = np.array([self.word_vectors[w] for w in bags.vocabulary]).reshape(-1, width)
        return bags.unit_vectors(vectors, slice(0, 1)).reshape(width)

    def _read_vectors(self, words: list[str]) -> NDArray[np.float64]:
        """Read the vectors of words from the file."""
        if self.file is None:
            self.file = self.source.params.find_file(self.runtime.data, self.manifest)
        read = read_word_vectors(self.file, words)
        return vectors_of_words(read.index, read.vectors, words)
