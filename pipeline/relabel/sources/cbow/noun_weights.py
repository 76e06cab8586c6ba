"""Weighting of the released code of Ladder Loss: the words of spaCy, with nouns counted twice.

Zhou et al., "Ladder Loss for Coherent Visual-Semantic Embedding", AAAI 2020. The paper describes a plain mean, and the
released code uses these weights. The code also tests for stop words, without effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from relabel.core.errors import MissingError, UsageError
from relabel.core.progress import Progress

NOUN_WEIGHT = 2.0
_UNUSED = ("parser", "ner", "lemmatizer", "senter")  # components that are excluded from loading


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
