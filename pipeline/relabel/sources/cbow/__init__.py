"""Source `cbow`: cosine of the mean word vectors of two captions, with any text file of GloVe or word2vec.

The mean is over all tokens. A token without a vector is skipped: counting it would change the length of the mean, but
not its direction. Ladder Loss (Zhou et al., AAAI 2020, section 4.1) computes labels from GloVe in this way, as does
GLUE's CBoW baseline.

The weighting `ladder` is that of the released code of Ladder Loss, which takes the words of spaCy, with nouns counted
twice. The paper describes a plain mean. The code says that it skips stop words, and averages all words. Its test for
stop words matters for captions of nothing else: their mean is plain and is not scaled to length 1, so that the label is
no cosine. Here, every label is a cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Progress, Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.tokenizers import Tokenizer, lower_tokens, tokenize_text
from relabel.sources.base import Encoding
from relabel.sources.cosine import (
    StoredType,
    VectorRelevance,
    VectorSource,
    make_vector_spec,
    make_vector_table,
    read_vectors,
    vectors_from_table,
)
from relabel.sources.scripts import warn_unspaced
from relabel.sources.shards import Shards
from relabel.sources.words.params import VECTORS, WordVectorParams
from relabel.sources.words.shards import (
    VECTORS_FILE,
    WordBags,
    count_words,
    record_oov,
    record_vectors,
    vectors_of_words,
    vectors_step,
)
from relabel.sources.words.vectors import look_up
from relabel.store.workdir import Steps, Work

_CAPTIONS = 8192  # captions per product, which bounds the memory for sums
NOUN_WEIGHT = 2.0
_UNUSED = ("parser", "ner", "lemmatizer", "senter")  # components that are excluded from loading


class CbowParams(WordVectorParams):
    """Parameters of cbow."""

    source: Literal["cbow"] = "cbow"
    vectors: str = Field("glove", description=VECTORS)
    pooling: Pooling = Field("max", description="Pooling of an image's references into one number.")
    weighting: Literal["mean", "ladder"] = Field(
        "mean", description="mean of all tokens; ladder: of spaCy's tokens, nouns twice, as its released code does."
    )
    tokenizer: Tokenizer = Field("ptb", description="ptb or lower_split; not used by weighting ladder.")
    tagger: str = Field("en_core_web_lg", description="spaCy model of weighting ladder.")
    stored: StoredType = Field("float32", description="Type of the stored vectors.")


class Cbow(VectorSource[CbowParams]):
    """Cosine of mean word vectors."""

    spec = make_vector_spec("cbow", CbowParams)

    @override
    def tokenizer(self) -> str | None:
        return "ptb" if (self.params.weighting, self.params.tokenizer) == ("mean", "ptb") else None

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the word vectors identified by their sha256."""
        params = self.params.model_dump(include={"source", "weighting", "stored"})
        if self.params.weighting == "ladder":
            params["tagger"] = tagger_version(self.params.tagger)
        else:
            params["tokenizer"] = self.params.tokenizer
        return params | {"vectors": self.params.file_fingerprint(runtime.data)}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Make shards of unit vectors (see `make_vector_table`); zeros for a caption without a known word."""
        shards, file = Shards(corpus, rows, rows_per_shard), self.params.find_file(runtime.data)
        warn_unspaced(shards, work)

        @cache
        def vectors() -> tuple[dict[str, int], NDArray[np.float32]]:
            """Row of each word, and the vectors of all words."""
            table = pq.read_table(work.folder / VECTORS_FILE)
            return {word: i for i, word in enumerate(table["word"].to_pylist())}, vectors_from_table(table)

        def split(part: range, weighted: bool = False) -> WordBags:
            if self.params.weighting == "ladder":
                return self._tagged(corpus.read("text", part), runtime, weighted)
            return WordBags.from_texts(corpus.words(self.params.tokenizer, part))

        def make_shard(part: range) -> pa.Table:
            bags = split(part, weighted=True)
            word_vectors = vectors_of_words(*vectors(), bags.vocabulary)
            unit = np.empty((len(part), word_vectors.shape[1]), np.float32)
            # Sums are in float64, so they are computed for some captions at a time.
            for a in range(0, len(part), _CAPTIONS):
                some = slice(a, min(a + _CAPTIONS, len(part)))
                unit[some] = bags.unit_vectors(word_vectors, some)
                runtime.progress.advance(some.stop - some.start)
            return make_vector_table(part, unit, self.params.stored)

        counts = cache(partial(count_words, shards, split))
        yield vectors_step(file, lambda: look_up(file, counts(), runtime))
        yield shards.step(f"mean word vectors ({file.name})", make_shard, plain=True)
        zeros = 0
        for column in shards.read_column(work, "vector"):
            # A vector of zeros marks a caption without a known word.
            zeros += int((~vectors_from_table(pa.table({"vector": column})).any(axis=1)).sum())
        table = record_vectors(work, file, self.params.tokenizer if self.params.weighting == "mean" else "spacy")
        record_oov(work, counts(), set(table["word"].to_pylist()), zeros)
        # The vectors of words are needed only to make the shards.
        work.excluded.add(VECTORS_FILE)

    @override
    def open(self, encoding: Encoding) -> VectorRelevance:
        """Open the vectors. The file of word vectors is read for new texts only."""
        return VectorRelevance(
            encoding.corpus,
            encoding.rows,
            self.params.pooling,
            read_vectors(encoding.folder, encoding.manifest),
            self._text_encoder(encoding),
        )

    def _tagged(self, texts: list[str], runtime: Runtime, weighted: bool = True) -> WordBags:
        """Split texts into spaCy's words; their weights cost time, and are 1 unless `weighted`."""
        # Tagging is slow, so each distinct text is tagged once.
        number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        words = list(noun_weights(list(number), self.params.tagger, runtime.progress, weighted))
        return WordBags.from_weighted_words(words, np.array([number[text] for text in texts], np.int64))

    def _text_encoder(self, encoding: Encoding) -> Callable[[str], NDArray[np.float32]]:
        """Return the function from a new text to its (D,) unit vector; zeros if no word is known."""
        runtime, width = encoding.runtime, int(encoding.manifest.metadata["width"])
        known: dict[str, NDArray[np.float64]] = {}

        def encode(text: str) -> NDArray[np.float32]:
            # A terminal can pass surrogates, which are no valid text.
            typed = text.encode(errors="replace").decode()
            if self.params.weighting == "ladder":
                bags = self._tagged([typed], runtime)
            else:
                tokens = tokenize_text(typed) if self.params.tokenizer == "ptb" else lower_tokens([typed])[0]
                bags = WordBags.from_texts([tokens])
            # A file has hundreds of thousands of lines, so only unseen words are looked up.
            if new := [word for word in bags.vocabulary if word not in known]:
                read = look_up(self.params.find_file(runtime.data, encoding.manifest), new, runtime)
                known.update(zip(new, vectors_of_words(read.index, read.vectors, new), strict=True))
            vectors = np.array([known[word] for word in bags.vocabulary]).reshape(-1, width)
            return bags.unit_vectors(vectors, slice(0, 1)).reshape(width)

        return encode


@lru_cache(maxsize=1)
def load_tagger(model: str) -> Any:
    """Load a spaCy pipeline that tags parts of speech."""
    try:
        import spacy

        tagger = spacy.load(model, exclude=_UNUSED)
    except (ImportError, OSError) as error:
        todo = f"Run `pip install spacy` and `python -m spacy download {model}`, or set `weighting: mean`."
        raise MissingError(f"weighting `ladder` needs spaCy and its model {model}", todo=todo) from error
    if not {"tagger", "morphologizer"} & set(tagger.pipe_names):
        raise UsageError(f"spaCy model {model} does not tag parts of speech", todo="Use en_core_web_sm, _md or _lg.")
    return tagger


def tagger_version(model: str) -> str:
    """Return model and library as a fingerprint needs them: `core_web_lg 3.8.0, spacy 3.8.16`."""
    tagger = load_tagger(model)
    import spacy

    return f"{tagger.meta['name']} {tagger.meta['version']}, spacy {spacy.__version__}"


def noun_weights(
    texts: Sequence[str], model: str, progress: Progress, tagged: bool = True
) -> Iterator[list[tuple[str, float]]]:
    """Yield the words of each text, lower-cased after tagging, with weight 2 if spaCy's `pos_` is NOUN, else 1.

    `texts`: texts as written, because a tagger uses capitals and punctuation. `model`: name of a spaCy model. `tagged`:
    if not, texts are split alone, a hundred times as fast, and every weight is 1.
    """
    tagger = load_tagger(model)
    with progress.bar(f"parts of speech ({model})", len(texts), "texts") as bar:
        for document in tagger.pipe(texts, batch_size=1000) if tagged else map(tagger.make_doc, texts):
            bar.advance()
            yield [(t.lower_, NOUN_WEIGHT if t.pos_ == "NOUN" else 1.0) for t in document if not t.is_space]
