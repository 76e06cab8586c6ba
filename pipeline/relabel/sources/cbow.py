"""cbow: cosine of the mean word vectors of two captions, with any GloVe or word2vec text file.

The mean is over all tokens. A token without a vector is skipped; counting it would change the mean's length and not its
direction. Of the papers, Ladder (Zhou et al., AAAI 2020, section 4.1) labels with GloVe this way, as does GLUE's CBoW.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from relabel.corpus import Corpus
from relabel.errors import CheckError, MissingError, UsageError
from relabel.runtime import Runtime
from relabel.sources.base import NO_PARTS, Kind, Pooling, Relevance, Source, SourceParams
from relabel.sources.cbow_units import CbowUnits
from relabel.sources.noun_weights import noun_weights, tagger_version
from relabel.sources.vectors import REFUSED, StoredType, VectorRelevance, read_vectors
from relabel.sources.word_bags import WordBags
from relabel.sources.word_tables import rows_of
from relabel.sources.word_vectors import WordVectorsFile, read_word_vectors
from relabel.store.manifest import Manifest, open_artefact
from relabel.text import Tokenizer, lower_split

TUNED = "word2vec"
"""Folder below the data folder where `relabel tune cbow` leaves its word vectors."""


class CbowParams(SourceParams):
    """Parameters of cbow."""

    source: Literal["cbow"] = "cbow"
    pooling: Pooling = Field("max", description="How the references of an image become one number.")
    vectors: str = Field(
        "word2vec",
        description="Word vectors: word2vec (what `relabel tune cbow` made), glove (what `relabel fetch glove` got), "
        "or a GloVe or word2vec text file: plain, .gz, .zip or FILE.zip:MEMBER.",
    )
    weighting: Literal["mean", "ladder"] = Field(
        "mean", description="mean of all tokens; ladder: of spaCy's tokens, nouns twice, as its released code does."
    )
    tokenizer: Tokenizer = Field("ptb", description="ptb or lower_split; not used by weighting ladder.")
    tagger: str = Field("en_core_web_lg", description="spaCy model of weighting ladder.")
    stored: StoredType = Field("float32", description="Type of the stored vectors.")
    index: str | None = Field("Flat", description="faiss index factory string; null for no index.")

    def anywhere(self) -> CbowParams:
        """See SourceParams.anywhere."""
        named = self.vectors in (TUNED, "glove")
        return self if named else self.model_copy(update={"vectors": str(Path(self.vectors).absolute())})


class Cbow(Source[CbowParams]):
    """Mean word vectors."""

    name: ClassVar[str] = "cbow"
    kind: ClassVar[Kind] = "vectors"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    symmetric: ClassVar[bool] = True
    version: ClassVar[int] = 1
    refused: ClassVar[dict[Pooling, str]] = REFUSED
    params_model: ClassVar[type[SourceParams]] = CbowParams

    def tokenizer(self) -> str | None:
        """See Source.tokenizer."""
        return "ptb" if (self.params.weighting, self.params.tokenizer) == ("mean", "ptb") else None

    def semantic(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """See Source.semantic."""
        file = find_vectors(self.params.vectors, runtime.data)
        known = self.params.model_dump(include={"source", "weighting", "stored", "index"})
        if self.params.weighting == "ladder":
            known["tagger"] = tagger_version(self.params.tagger)
        else:
            known["tokenizer"] = self.params.tokenizer
        return known | {"vectors": {"name": file.name, "member": file.member, "sha256": file.sha256()}}

    def units(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> CbowUnits:
        """Shards of unit vectors (see `vector_table`), zeros for captions without a known word.

        Raises
        ------
        MissingError
            If the word vectors, or PTB tokens the source asks for, are not there.
        CheckError
            If the file of word vectors is not one; names file and line.
        """
        p, file = self.params, find_vectors(self.params.vectors, runtime.data)

        def bags(part: range) -> WordBags:
            if self.tokenizer() == "ptb":
                corpus.ptb_tokens()
            some = slice(part.start, part.stop)
            return self.bags_of(corpus.texts[some], runtime, corpus.tokens[some] if corpus.tokens else None)

        tokenizer = p.tokenizer if p.weighting == "mean" else "spacy"
        return CbowUnits(corpus, rows, rows_per_shard, p.index, file, bags, p.stored, tokenizer)

    def open(
        self,
        corpus: Corpus,
        folder: Path,
        manifest: Manifest,
        runtime: Runtime,
        parts: Mapping[str, Relevance] = NO_PARTS,
    ) -> VectorRelevance:
        """See Source.open. A new text needs the file of word vectors; all else does not."""
        return VectorRelevance(
            corpus,
            range(*manifest.facts["rows"]),
            self.params.pooling,
            read_vectors(folder, manifest),
            _TextEncoder(self, manifest, runtime),
        )

    def bags_of(self, texts: list[str], runtime: Runtime, tokens: list[str] | None = None) -> WordBags:
        """Cut texts into weighted words.

        Parameters
        ----------
        texts : list of str
            As written.
        runtime : Runtime
        tokens : list of str, optional
            PTB tokens of each, where they are known already.
        """
        if self.params.weighting == "ladder":
            distinct = list(dict.fromkeys(texts))
            number = {t: i for i, t in enumerate(distinct)}
            words = list(noun_weights(distinct, self.params.tagger, runtime.progress))
            return WordBags.weighted(words, np.array([number[t] for t in texts], np.int64))
        if self.params.tokenizer == "lower_split":
            return WordBags.plain([" ".join(lower_split(t)) for t in texts])
        if tokens is None:
            from relabel.ptb import tokenize

            tokens = tokenize(texts, runtime)
        return WordBags.plain(tokens)


@dataclass
class _TextEncoder:
    """Unit vector of a new text, from the same file of word vectors; words looked up once are kept."""

    source: Cbow
    manifest: Manifest
    runtime: Runtime
    known: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    file: WordVectorsFile | None = None

    def __call__(self, text: str) -> NDArray[np.float32]:
        typed = text.encode(errors="replace").decode()  # a terminal can pass what is no Unicode
        bags = self.source.bags_of([typed], self.runtime)
        new = [w for w in bags.vocabulary if w not in self.known]
        if new:
            self.known |= dict(zip(new, self._vectors_of(new), strict=True))
        width = int(self.manifest.facts["width"])
        vectors = np.array([self.known[w] for w in bags.vocabulary]).reshape(-1, width)
        return bags.unit_vectors(vectors, slice(0, 1)).reshape(width)

    def _vectors_of(self, words: list[str]) -> NDArray[np.float64]:
        found = read_word_vectors(self._file(), words)
        return rows_of(found.index, found.vectors, words)

    def _file(self) -> WordVectorsFile:
        if self.file is None:
            file = find_vectors(self.source.params.vectors, self.runtime.data)
            if file.sha256() != self.manifest.semantic["vectors"]["sha256"]:
                raise CheckError(
                    "these are not the word vectors that the encoding was made with",
                    where=file.where,
                    todo="Encode again.",
                )
            self.file = file
        return self.file


def find_vectors(vectors: str, data: Path) -> WordVectorsFile:
    """Find the file that `CbowParams.vectors` means.

    Parameters
    ----------
    vectors : str
        `word2vec`, `glove`, a file, or a folder that `relabel tune cbow` wrote.
    data : Path
        Folder of fetched and tuned assets.

    Raises
    ------
    MissingError
        With the command that gets it.
    CheckError
        If the file is not what its manifest says.
    UsageError
        If there are several and none is named.
    """
    if vectors == "glove":
        return _glove(data)
    folder = data / TUNED if vectors == TUNED else Path(vectors)
    if vectors != TUNED and not folder.is_dir():
        return WordVectorsFile.at(vectors)
    try:
        manifest = open_artefact(folder, "word_vectors")
    except MissingError:
        todo = "Make some with `relabel tune cbow`, or set `vectors` to glove or to a file."
        raise MissingError("no word vectors here", where=str(folder), todo=todo) from None
    return WordVectorsFile.at(folder / next(iter(manifest.files)), manifest.name)


def _glove(data: Path) -> WordVectorsFile:
    """The file that was fetched, else one that was put into its folder by hand."""
    from relabel.datasets import locate

    try:
        return WordVectorsFile.at(locate("glove", None, data))
    except MissingError:
        by_hand = sorted(p for e in ("txt", "txt.gz", "zip") for p in (data / "glove").glob(f"glove.*.{e}"))
        if not by_hand:
            raise
    if len(by_hand) > 1:
        names = ", ".join(p.name for p in by_hand)
        raise UsageError(
            f"several GloVe files: {names}", where=str(data / "glove"), todo="Set `vectors` to one of them."
        )
    return WordVectorsFile.at(by_hand[0])
