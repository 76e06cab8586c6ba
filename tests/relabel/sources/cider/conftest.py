"""Small corpora of tokens, encoded and opened by the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.relabel.sources.encodings import corpus_of, encode

from relabel.core.runtime import Runtime
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.cider.relevance import CiderRelevance


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., CiderRelevance]:
    """Return `opened(images, **params)`, which encodes captions and opens them."""

    def make(images: Sequence[Sequence[str]], **params: Any) -> CiderRelevance:
        source, runtime = Cider(CiderParams(**params)), Runtime(threads=2)
        return encode(source, corpus_of(images), tmp_path / "encoding", size=90, runtime=runtime)[0]  # type: ignore[no-any-return]

    return make
