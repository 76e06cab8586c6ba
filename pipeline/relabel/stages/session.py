"""The session that every stage works in: parameters, resources of a run, and folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from relabel.config import Config
from relabel.core.errors import MissingError, UsageError
from relabel.core.parameters import check_name
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.params import PUBLISHED_FORMATS, IngestParams
from relabel.datasets import locate
from relabel.store.artefact import PARAMETERS
from relabel.store.manifest import MANIFEST, Manifest, read_manifest


@dataclass(frozen=True, repr=False)
class Session:
    """Parameters, resources of a run, and folders.

    `labels`: folder of all artefacts.
    `parent`: the session whose captions include this one's. Models are trained on the captions of the parent, so that a
        label has the same model in both.
    `rebuilt`: artefacts that this command has built or found.
    """

    config: Config
    runtime: Runtime
    labels: Path = Path("labels")
    parent: Session | None = field(default=None, kw_only=True)
    rebuilt: set[Path] = field(default_factory=set, kw_only=True, compare=False)
    _noted: set[str] = field(default_factory=set, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        # Models are those of the parent's captions.
        config = self.config.with_models(self.runtime.data, (self.parent or self).config.ingest.dataset)
        # The dataclass is frozen for its users; the instance is still under construction.
        object.__setattr__(self, "config", config)

    def folder(self, *names: str) -> Path:
        """Return a folder of this dataset, such as ``labels/coco/encodings/SPLIT/LABEL``; no name leads out of it."""
        return Path(self.labels, self.config.ingest.dataset, *(check_name("folder", name) for name in names))

    @property
    def reused_corpus(self) -> Manifest | None:
        """Manifest of a corpus that was ingested from a path and is used as it is; None if the parameters name a path.

        A path is given once, to `ingest`. Later commands name the dataset only.
        """
        folder = self.folder("corpus")
        manifest = read_manifest(folder, "corpus") if (folder / MANIFEST).exists() else None
        reusable = manifest is not None and manifest.provenance[PARAMETERS]["ingest.path"]
        return None if not reusable or self.config.ingest.has_location else manifest

    def captions(self) -> IngestParams:
        """Return the parameters of the corpus; if they name no captions, those of before with what is given now."""
        params = self.config.ingest
        if params.url is not None:
            if params.path is not None:
                raise UsageError("path and url exclude each other", where="ingest")
            from relabel.corpus.readers.remote import fetch_captions

            copied = fetch_captions(params, self.runtime.data, self.runtime.progress)
            return params.model_copy(update={"path": copied, "url": None})
        if params.path is not None or (manifest := self.reused_corpus) is None:
            return params
        before = {name.partition(".")[2]: value for name, value in manifest.provenance[PARAMETERS].items()}
        place = Path(os.path.relpath(self.folder("corpus") / before["path"]))
        given = params.model_dump(include=params.model_fields_set)
        return IngestParams.model_validate(before | given | {"dataset": params.dataset, "path": place})

    def ingest_values(self, params: IngestParams) -> dict[str, Any]:
        """Return the parameters of the corpus by dotted name; the path from the corpus, so that both can be moved."""
        values = params.model_dump(mode="json", exclude={"dataset", "url"})
        if params.path is not None:
            # Links stay: the captions are what they lead to when the path is read again.
            values["path"] = os.path.relpath(params.path, self.folder("corpus"))
        return {f"ingest.{name}": value for name, value in values.items()}

    @property
    def namespace(self) -> str:
        """Prefix of the ids."""
        manifest = self.reused_corpus
        return self.config.ingest.prefix if manifest is None else str(manifest.config["namespace"])

    def command(self, verb: str, **options: object) -> str:
        """Return a command on this dataset, for a message."""
        words = ["relabel", verb]
        for name, value in (options | {"dataset": self.config.ingest.dataset}).items():
            if value is not None:
                words += [f"--{name}", str(value)]
        return f"`{' '.join(words)}`"

    @cached_property
    def corpus(self) -> Corpus:
        """The ingested corpus, of today's captions and parameters."""
        folder, dataset = self.folder("corpus"), self.config.ingest.dataset
        command = self.command("ingest", path=None if dataset in PUBLISHED_FORMATS else "PATH")
        if not (folder / MANIFEST).exists():
            todo = f"Make it with {command}."
            if ingested := sorted(folder.parent.name for folder in self.labels.glob("*/corpus")):
                todo = f"Name a dataset with --dataset: {', '.join(ingested)}. {todo}"
            raise MissingError(f"no corpus of dataset {dataset} here", where=str(folder), todo=todo)
        from relabel.stages.ingest import check_captions, row_ids

        check_captions(self)
        return replace(Corpus.open(folder, self.runtime.progress, command), read_ids=partial(row_ids, self))

    def note_once(self, text: str) -> None:
        """Log a line, unless it has been logged."""
        if text not in self._noted:
            self._noted.add(text)
            self.runtime.progress.note(text)

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raise for an unknown label, whose name is a better message than what it lacks later."""
        for label in labels:
            self.config.params(label)

    def available(self, labels: Iterable[str]) -> list[str]:
        """Return the labels that have what `relabel fetch` gets for them; the others are noted.

        Raises MissingError if none has.
        """
        found, missing = list[str](), list[MissingError]()
        for label in labels:
            names = list[str]()
            # A fuse without its model says so itself, when it is used.
            with suppress(MissingError):
                names = [name for source in self.config.with_parts(label).values() for name in source.params.fetched()]
            try:
                for name in names:
                    locate(name, None, self.runtime.data)
                found.append(label)
            except MissingError as error:
                self.note_once(f"{label} is left out: {error}")
                missing.append(error)
        if missing and not found:
            raise missing[0]
        return found

    def training_split(self, split: str | None) -> str:
        """Return a named split; without a name, train if the corpus has it, its only split, or all."""
        if split is not None or "train" in self.corpus.splits:
            return split or "train"
        return next(iter(self.corpus.splits)) if len(self.corpus.splits) == 1 else "all"

    def label_splits(self, split: str | None = None) -> tuple[str, ...]:
        """Return the splits that are labelled: the named one; else `judge.split` of a benchmark, or all of other data.

        People train on captions of their own; on a benchmark, they first compare labels on the judged split.
        """
        judged = self.config.judge.split
        if split is None and (self.namespace not in PUBLISHED_FORMATS or judged not in self.corpus.splits):
            return tuple(self.corpus.splits)
        return (split or judged,)

    def splits(self, split: str) -> tuple[str, ...]:
        """Return the splits that a name stands for: all of the corpus for `all`, else the split itself."""
        return tuple(self.corpus.splits) if split == "all" else (split,)


def only_dataset(labels: Path) -> str | None:
    """Return the dataset of a folder of labels that holds one alone; otherwise None."""
    held = [manifest.parents[1].name for manifest in labels.glob(f"*/corpus/{MANIFEST}")]
    return held[0] if len(held) == 1 else None
