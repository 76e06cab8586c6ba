"""Encodings of spice without its parser, from recorded tuples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.encodings import encode
from tests.relabel.sources.spice.stand_in import RecordedParser, Tuples

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.spice import Spice, SpiceParams
from relabel.sources.spice.relevance import SceneGraphRelevance

OBJECTS = "man person guy adult dog hound pup street road path car auto automobile bathroom toilet commode lavatory can"
ATTRIBUTES = "big large great red small little tiny bright smart zzz"
RELATIONS = "on be on ride drive with in inside hold carry be behind be"


def drawn(rng: np.random.Generator, most: int = 9) -> Tuples:
    """Draw the tuples of a caption from words that are synonyms of each other."""
    objects, attributes, relations = OBJECTS.split(), ATTRIBUTES.split(), ["on", "be on", *RELATIONS.split()]
    out: Tuples = []
    for size in rng.integers(1, 4, int(rng.integers(0, most))):
        first, second = (str(w) for w in rng.choice(objects, 2))
        out.append(
            [[first], [first, str(rng.choice(attributes))], [first, second, str(rng.choice(relations))]][size - 1]
        )
    return out


def open_recorded(
    corpus: Corpus,
    tuples_of: Callable[[str], Tuples | None],
    folder: Path,
    rows: range | None = None,
    threads: int = 1,
    **params: Any,
) -> SceneGraphRelevance:
    """Encode rows with recorded tuples in place of the parser's, and open them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relabel.sources.spice.cached_parser", lambda *_: RecordedParser(tuples_of))
        return encode(Spice(SpiceParams(**params)), corpus, folder, rows, 4096, Runtime(threads=threads))[0]  # type: ignore[no-any-return]
