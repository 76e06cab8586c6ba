"""The project that every stage works on: parameters, resources of a run, and folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from textwrap import shorten

from relabel.config import Config
from relabel.core.errors import MissingError, choices
from relabel.core.layout import Layout
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.params import PUBLISHED_FORMATS
from relabel.store.manifest import MANIFEST, Manifest, read_manifest


@dataclass(frozen=True, repr=False)
class Project:
    """Parameters, resources of a run, and folders.

    `labels`: folder of all artefacts.
    `parent`: the project whose captions include this one's. Models are trained on the captions of the parent, so that a
        label has the same model in both.
    """

    config: Config
    runtime: Runtime
    labels: Path = Path("labels")
    parent: Project | None = field(default=None, kw_only=True)
    _noted: set[str] = field(default_factory=set, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        # Models are those of the parent's captions.
        config = self.config.with_models(self.runtime.data, (self.parent or self).config.ingest.dataset)
        # The dataclass is frozen for its users; the instance is still under construction.
        object.__setattr__(self, "config", config)

    def __repr__(self) -> str:
        labels = shorten(", ".join(self.config.sources), 100, placeholder=" ...")
        return f"<Project {self.layout.root}: labels {labels}; data in {self.runtime.data}>"

    @cached_property
    def layout(self) -> Layout:
        """Folders of this dataset."""
        return Layout(self.labels, self.config.ingest.dataset)

    @property
    def reused_corpus(self) -> Manifest | None:
        """Manifest of a corpus that was ingested from a path and is used as it is; None if the parameters name a path.

        A path is given once, to `ingest`. Later commands name the dataset only.
        """
        if self.config.ingest.has_location or not (self.layout.corpus / MANIFEST).exists():
            return None
        manifest = read_manifest(self.layout.corpus, "corpus")
        return manifest if manifest.runtime["parameters"]["ingest.path"] else None

    @property
    def namespace(self) -> str:
        """Prefix of the ids."""
        manifest = self.reused_corpus
        return self.config.ingest.prefix if manifest is None else str(manifest.semantic["namespace"])

    def command(self, verb: str, **options: object) -> str:
        """Return a command on this dataset, for a message."""
        words = ["relabel", verb]
        for name, value in (options | {"dataset": self.config.ingest.dataset}).items():
            if value is not None:
                words += [f"--{name}", str(value)]
        return f"`{' '.join(words)}`"

    @cached_property
    def corpus(self) -> Corpus:
        """The ingested corpus."""
        if not (self.layout.corpus / MANIFEST).exists():
            dataset = self.config.ingest.dataset
            path = None if dataset in PUBLISHED_FORMATS else "PATH"
            todo = f"Make it with {self.command('ingest', path=path)}."
            if ingested := sorted(folder.parent.name for folder in self.labels.glob("*/corpus")):
                todo = f"{choices(dataset, ingested)} {todo}"
            raise MissingError(f"no corpus of dataset {dataset} here", where=str(self.layout.corpus), todo=todo)
        from relabel.stages.ingest import check_captions

        check_captions(self)
        return Corpus.open(self.layout.corpus)

    def note_once(self, text: str) -> None:
        """Log a line, unless it has been logged."""
        if text not in self._noted:
            self._noted.add(text)
            self.runtime.progress.note(text)

    def choose_split(self, split: str | None, default: str, labels: Sequence[str] = ()) -> str:
        """Return a named split as it is; without a name, the default if the corpus has it, its only split, or all.

        `labels`: names that are checked.
        """
        for label in labels:
            self.config.params(label)
        if split is not None or default in self.corpus.splits:
            return split or default
        return next(iter(self.corpus.splits)) if len(self.corpus.splits) == 1 else "all"

    def splits(self, split: str) -> tuple[str, ...]:
        """Return the splits that a name stands for: all of the corpus for `all`, else the split itself."""
        return tuple(self.corpus.splits) if split == "all" else (split,)
