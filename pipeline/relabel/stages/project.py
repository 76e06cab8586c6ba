"""What every stage works on: parameters, what a run may use, and where everything lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError
from relabel.core.layout import Layout
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.words.params import TUNED
from relabel.store.manifest import Manifest, read_manifest


@dataclass(frozen=True)
class Project:
    """Parameters, what a run may use, and where everything lies.

    Attributes
    ----------
    config : Config
    runtime : Runtime
    labels : Path
    parent : Project, optional
        The project that this one's captions are some of: what models are trained on.
    """

    config: Config
    runtime: Runtime
    labels: Path = Path("labels")
    parent: Project | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        config = self.config.with_models(self.runtime.data, self.training_dataset)
        object.__setattr__(self, "config", config)  # frozen: this is still the making of it

    def for_worker(self, runtime: Runtime) -> Self:
        """Return the same project for a process in another folder: with this runtime and absolute paths."""
        sources = {label: params.with_absolute_paths() for label, params in self.config.sources.items()}
        config = self.config.model_copy(update={"sources": sources})
        return replace(self, config=config, runtime=runtime, labels=self.labels.absolute())

    @property
    def training_dataset(self) -> str:
        """Dataset whose captions its models are trained on."""
        return (self.parent or self).config.ingest.dataset

    @cached_property
    def layout(self) -> Layout:
        """Folders of this dataset."""
        return Layout(self.labels, self.config.ingest.dataset)

    @property
    def reused_corpus(self) -> Manifest | None:
        """Manifest of a corpus that was ingested from a path, used as it is where the parameters name no path."""
        if self.config.ingest.path is not None:
            return None
        try:
            manifest = read_manifest(self.layout.corpus, "corpus")
        except (MissingError, CheckError):
            return None
        return manifest if manifest.runtime.get("origin", {}).get("path") else None

    @property
    def namespace(self) -> str:
        """Prefix of the ids."""
        manifest = self.reused_corpus
        return self.config.ingest.prefix if manifest is None else str(manifest.semantic["namespace"])

    @property
    def word2vec(self) -> Path:
        """Word vectors trained on the dataset."""
        return self.runtime.data / TUNED / self.training_dataset

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
