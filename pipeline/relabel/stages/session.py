"""The session that every stage works in: parameters, resources of a run, folders, and notes about the command."""

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
    """What a command has done so far. A session shares them with the sessions that `replace` makes of it.

    `logged`: lines that were shown.
    `rebuilt`: artefacts that were built, or were up to date.
    `corpora`: see `open_corpus`.
    """

    logged: set[str] = field(default_factory=set)
    rebuilt: set[Path] = field(default_factory=set)
    corpora: dict[tuple[Path, str, str], Corpus] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Session:
    """Parameters, resources of a run, folders, and notes about the command.

    `labels`: folder of all artefacts.
    `parent`: the session whose captions include this one's. Models are trained on the captions of the parent, so that a
        label has the same model in both.
    """

    config: Config
    runtime: Runtime
    labels: Path = Path("labels")
    parent: Session | None = field(default=None, kw_only=True)
    notes: Notes = field(default_factory=Notes, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        config, captions = self.config, self.config.ingest
        if captions.limit is not None:
            # A dataset in its own folder: a trial never replaces the complete dataset.
            name = name_of_first(captions.dataset, captions.limit)
            config = config.model_copy(update={"ingest": captions.model_copy(update={"dataset": name})})
        # Models are those of the parent's captions.
        config = config.with_models(self.runtime.data, (self.parent or self).config.ingest.dataset)
        # The dataclass is frozen for its users; the instance is still under construction.
        object.__setattr__(self, "config", config)

    def judged_on(self, split: str) -> Session:
        """Return the session with another split of `judge.split`."""
        judge = self.config.judge.model_copy(update={"split": split})
        return replace(self, config=self.config.model_copy(update={"judge": judge}))

    def folder(self, *names: str) -> Path:
        """Return a folder of this dataset, such as ``labels/coco/encodings/SPLIT/LABEL``; no name leads out of it."""
        return Path(self.labels, self.config.ingest.dataset, *(check_name("folder", name) for name in names))

    def command(self, verb: str, **options: object) -> str:
        """Return a command on this dataset, for a message."""
        words = ["relabel", verb]
        for name, value in (options | {"dataset": self.config.ingest.dataset}).items():
            if value is not None:
                words += [f"--{name}", str(value)]
        return f"`{' '.join(words)}`"

    def note_once(self, text: str) -> None:
        """Log a line, unless it has been logged."""
        if text not in self.notes.logged:
            self.notes.logged.add(text)
            self.runtime.progress.note(text)


def only_dataset(labels: Path) -> str | None:
    """Return the dataset of a folder of labels that has a single one; otherwise None."""
    held = [manifest.parents[1].name for manifest in labels.glob(f"*/corpus/{MANIFEST}")]
    return held[0] if len(held) == 1 else None
