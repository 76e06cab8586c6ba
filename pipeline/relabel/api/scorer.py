"""Scores of texts that do not belong to a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.config import load_config
from relabel.core.errors import UsageError, naming_extras
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.texts import REFERENCE_SPLIT, TextCorpus, score_texts, with_tokenizer
from relabel.stages import Session
from relabel.store.manifest import MANIFEST

Texts = Sequence[str]
Documents = str | Path | Corpus | Texts | Sequence[Texts]


class Scorer:
    """Scorer of captions against reference sets. The texts need not belong to a dataset.

    Models, word vectors and Java programs are loaded by the first calls and stay as long as the scorer exists. Use a
    scorer in one thread and one process.

    Parameters
    ----------
    source : str, default="sbert"
        Name of a source ("sbert", "cbow", "cider", "spice", "meteor", "wmd", "bert_sts" or "fuse"), or of a label in
        the parameter file.
    documents : sequence of str, sequence of sequence of str, Corpus, str or Path, optional
        Texts or reference sets over which CIDEr counts its document frequencies (duplicates count once), or the folder
        of a dataset (``labels/coco``); the parameter `df` selects a split of its images. The score of a pair then does
        not depend on the other pairs of a call. By default, the documents are the reference sets and the captions of
        each call, so a call needs two sets or two captions. Other sources ignore them.
    runtime : Runtime, optional
        Folder of models, device and threads.
    **parameters
        Parameters of the source: `model` of sbert, `vectors` of cbow, `tokenizer` of cider, `pooling`, ...

    Attributes
    ----------
    name : str
        Name of the scorer in a report of `correlate`. It may be changed.
    pooling : {"first", "max", "mean", "set"}
        Reduction over the references of a set.

    Raises
    ------
    UsageError
        If the source or parameter does not exist, the source cannot score texts without a dataset, or `documents` are
        not texts.
    MissingError
        If the folder of `documents` does not hold a corpus.

    Examples
    --------
    >>> import relabel
    >>> documents = ["a dog runs", "two cats sleep", "a man on a board"]
    >>> scorer = relabel.Scorer("cider", documents=documents, tokenizer="lower_split")
    >>> scorer(["a dog on a board", "a dog surfs"], ["a dog surfs", "two cats"]).round(2)
    array([4.71, 0.  ])
    >>> scorer([["a dog on a board", "a dog surfs"], ["two cats sleep"]], ["a dog surfs", "two cats"]).shape
    (2, 2)
    """

    @naming_extras()
    def __init__(
        self,
        source: str = "sbert",
        *,
        documents: Documents | None = None,
        runtime: Runtime | None = None,
        **parameters: Any,
    ) -> None:
        settings = {f"sources.{source}": {"source": source, **parameters}} if parameters else {}
        session = Session(load_config(None, [], settings), runtime or Runtime())
        self.name, self._label, self._runtime = source, source, replace(session.runtime, kept={})
        self._sources, self._fixed = session.config.with_parts(source), documents is not None
        for one in self._sources.values():
            one.require("query")
        self.pooling = self._sources[source].params.pooling
        if documents is not None:
            corpus, images = self._corpus(documents)
            self._sources = {name: one.with_documents(corpus, images) for name, one in self._sources.items()}

    def __call__(self, references: Texts | Sequence[Texts], captions: Texts) -> NDArray[np.float64]:
        """Score every caption against every reference set.

        Parameters
        ----------
        references : sequence of str, or sequence of sequence of str
            One reference set, the texts that describe one image, or M sets.
        captions : sequence of str
            N candidates.

        Returns
        -------
        ndarray of shape (N,) for one set, (M, N) for a list of sets; float64
            Relevance in the source's range: -1 to 1 for cosines, 0 to 10 for CIDEr-D, 0 to 1 for the others. A caption
            that is empty or blank has the minimum. NaN where a text could not be encoded.

        Raises
        ------
        UsageError
            If a list is empty, a reference is blank, an argument is not a list of texts, or a source with document
            frequencies is called for one reference set and one caption without `documents`.
        MissingError
            If a model, word vectors or Java is missing. The message names the command that gets it.
        """
        given, candidates = _listed("references", references), _texts("captions", captions, blank=True)
        single = isinstance(given[0], str)
        sets = [_texts("references", given)] if single else _sets("references", given)
        scores = self._score([texts for texts in sets for _ in candidates], candidates * len(sets))
        return scores if single else scores.reshape(len(sets), len(candidates))

    def pairs(self, references: Sequence[Texts], captions: Texts) -> NDArray[np.float64]:
        """Score P pairs of a reference set and a caption: (P,) float64.

        Parameters
        ----------
        references : sequence of sequence of str
            P reference sets.
        captions : sequence of str
            P candidates.

        Raises
        ------
        UsageError, MissingError
            As for a call of the scorer, and if the two sequences differ in length.
        """
        sets, candidates = _sets("references", references), _texts("captions", captions, blank=True)
        if len(sets) != len(candidates):
            raise UsageError(f"pairs need as many references as captions, found {len(sets):,} and {len(candidates):,}")
        return self._score(sets, candidates)

    @naming_extras()
    def _score(self, sets: list[list[str]], captions: list[str]) -> NDArray[np.float64]:
        # A single reference set has no document frequencies: every n-gram would be in all documents and weigh nothing.
        # So each caption is a document, with one candidate, only to make it count. The only caption of the only set
        # would not help: what both share is in all documents. Without it, the source sees one document, and raises.
        documents = list(dict.fromkeys(filter(str.strip, captions)))
        if self._fixed or (len(documents) < 2 and all(texts == sets[0] for texts in sets)):
            documents = []
        sets, texts = sets + [[text] for text in documents], captions + documents
        scored = score_texts(self._sources[self._label], sets, texts, self._runtime, self._sources, label=self._label)
        return scored.scores[: len(captions)]

    def _corpus(self, documents: Documents) -> tuple[Corpus, range | None]:
        """Return a corpus of documents, and the images that count if the parameters do not select them."""
        if isinstance(documents, Corpus):
            return documents, None
        if isinstance(documents, str | Path):
            folder = Path(documents)
            return Corpus.open(folder if (folder / MANIFEST).exists() else folder / "corpus"), None
        listed = _listed("documents", documents)
        sets = _sets("documents", [[one] if isinstance(one, str) else one for one in listed])
        corpus = TextCorpus.of(sets, [texts[0] for texts in sets]).corpus
        return with_tokenizer(corpus, self._runtime), corpus.images([REFERENCE_SPLIT])


@naming_extras()
def score(
    references: str | Sequence[str],
    captions: str | Sequence[str],
    source: str = "sbert",
    *,
    documents: Documents | None = None,
    runtime: Runtime | None = None,
    **parameters: Any,
) -> NDArray[np.float64]:
    """Score captions against one reference set. The texts need not belong to any dataset.

    Each call loads its model again. `Scorer` loads it once.

    Parameters
    ----------
    references : str or sequence of str
        The texts that describe one image.
    captions : str or sequence of str
        N candidates.
    source : str, default="sbert"
        As for `Scorer`.
    documents : sequence of str, sequence of sequence of str, Corpus, str or Path, optional
        As for `Scorer`. `references` are added to a list as one more document. Without documents, CIDEr needs two
        captions.
    runtime : Runtime, optional
    **parameters
        As for `Scorer`.

    Returns
    -------
    ndarray of shape (N,), float64
        As of `Scorer`.

    Raises
    ------
    UsageError, MissingError
        As `Scorer` and its calls.

    Examples
    --------
    >>> import relabel
    >>> relabel.score("a dog on a surfboard", ["a surfing dog", "two cats"], "cider", tokenizer="lower_split").round(2)
    array([0.52, 0.  ])
    """
    texts = _texts("references", [references] if isinstance(references, str) else references)
    candidates = [captions] if isinstance(captions, str) else captions
    if documents is not None and not isinstance(documents, str | Path | Corpus):
        documents = [*_listed("documents", documents), texts]
    return Scorer(source, documents=documents, runtime=runtime, **parameters)(texts, candidates)


def _listed(name: str, value: Any) -> list[Any]:
    # A string is a sequence of strings: without this check its letters would be scored.
    if isinstance(value, str):
        raise UsageError(f"{name} must be a list, found the string {value!r}", hint=f"{name}=[{value!r}]")
    try:
        listed = list(value)
    except TypeError:
        raise UsageError(f"{name} must be a list, found {value!r}") from None
    if not listed:
        raise UsageError(f"{name} is an empty list", hint="Give at least one text.")
    return listed


def _texts(name: str, value: Any, blank: bool = False) -> list[str]:
    texts = _listed(name, value)
    for i, text in enumerate(texts):
        try:
            str.encode(text)
        except (TypeError, UnicodeEncodeError):  # a lone surrogate is not valid text either
            raise UsageError(f"{name}[{i}] must be a text, found {text!r}") from None
        if not (blank or text.strip()):
            raise UsageError(f"{name}[{i}] is blank", hint="Leave it out.")
    return texts


def _sets(name: str, value: Any) -> list[list[str]]:
    return [_texts(f"{name}[{i}]", texts) for i, texts in enumerate(_listed(name, value))]
