"""What every stage works on: parameters, what a run may use, and where everything lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from relabel.config import Config
from relabel.corpus import Corpus
from relabel.layout import Layout
from relabel.runtime import Runtime


@dataclass(frozen=True)
class Project:
    """Parameters, what a run may use, and where everything lies.

    Attributes
    ----------
    config : Config
    runtime : Runtime
    labels : Path
    whole : Project, optional
        The project that this one's captions are some of: what models are trained on.
    """

    config: Config
    runtime: Runtime
    labels: Path = Path("labels")
    whole: Project | None = field(default=None, kw_only=True)

    @cached_property
    def layout(self) -> Layout:
        """Folders of this dataset."""
        return Layout(self.labels / self.config.ingest.dataset)

    @property
    def word2vec(self) -> Path:
        """Word vectors trained here."""
        return self.runtime.data / "word2vec"

    @property
    def cross_encoder(self) -> Path:
        """The cross-encoder tuned here."""
        return self.runtime.data / "bert_sts"

    @cached_property
    def corpus(self) -> Corpus:
        """The ingested corpus."""
        return Corpus.open(self.layout.corpus)

    def splits(self, split: str) -> tuple[str, ...]:
        """Names of the splits that `split` means: itself, or those the corpus has for `all`."""
        return tuple(self.corpus.splits) if split == "all" else (split,)
