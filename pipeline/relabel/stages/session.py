"""The session of a command: parameters, runtime, folders and notes. Every stage takes it as its first argument."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from relabel.config import Config
from relabel.core.parameters import check_name
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.params import name_of_first
from relabel.store.manifest import MANIFEST


@dataclass
class Notes:
    """Record of the work that a command has done, shared between a session and its copies by `replace`.

    `logged`: lines that were shown.
    `rebuilt`: artefacts that were built, or were up to date.
    `corpora`: see `open_corpus`.
    """

    logged: set[str] = field(default_factory=set)
    rebuilt: set[Path] = field(default_factory=set)
    corpora: dict[tuple[Path, str, str], Corpus] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Session:
    """Parameters, runtime, folders and notes of a command.

    `labels`: folder of all artefacts.
    `parent`: session of the complete captions, if this one has a subset. Models are trained on the parent's captions,
        so a label has the same model in both.
    """

    config: Config
    runtime: Runtime
    labels: Path = Path("labels")
    parent: Session | None = field(default=None, kw_only=True)
    notes: Notes = field(default_factory=Notes, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        config, captions = self.config, self.config.ingest
        if captions.limit is not None:
            # A trial has a separate folder and never replaces the complete dataset.
            name = name_of_first(captions.dataset, captions.limit)
            config = config.model_copy(update={"ingest": captions.model_copy(update={"dataset": name})})
        config = config.with_models(self.runtime.data, (self.parent or self).config.ingest.dataset)
        # The dataclass is frozen, but the instance is still under construction.
        object.__setattr__(self, "config", config)

    def judged_on(self, split: str) -> Session:
        """Return a copy of the session with `judge.split` set to a split."""
        judge = self.config.judge.model_copy(update={"split": split})
        return replace(self, config=self.config.model_copy(update={"judge": judge}))

    def folder(self, *names: str) -> Path:
        """Return a folder of this dataset, such as ``labels/coco/encodings/SPLIT/LABEL``. Unsafe names raise."""
        return Path(self.labels, self.config.ingest.dataset, *(check_name("folder", name) for name in names))

    def command(self, verb: str, **options: object) -> str:
        """Return a command for this dataset, to show in a message."""
        words = ["relabel", verb]
        for name, value in (options | {"dataset": self.config.ingest.dataset}).items():
            if value is not None:
                words += [f"--{name}", str(value)]
        return f"`{' '.join(words)}`"

    def note_once(self, text: str) -> None:
        """Log a line unless it was logged before."""
        if text not in self.notes.logged:
            self.notes.logged.add(text)
            self.runtime.progress.note(text)


def datasets_in(labels: Path) -> list[str]:
    """Return the sorted names of the datasets in a folder of labels."""
    return sorted(manifest.parents[1].name for manifest in labels.glob(f"*/corpus/{MANIFEST}"))
