"""Where everything that is built lies, below one folder a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Folders of one dataset: ``labels/coco/{corpus, encodings/SPLIT/LABEL, judgements/SPLIT/LABEL, report/SPLIT}``."""

    root: Path

    @property
    def corpus(self) -> Path:
        """The corpus."""
        return self.root / "corpus"

    def encoding(self, split: str, label: str) -> Path:
        """One label's encoding of one split."""
        return self.root / "encodings" / split / label

    def neighbours(self, within: str, of: str, label: str) -> Path:
        """The captions of split `within` nearest to each of its captions or images."""
        return self.root / "neighbours" / within / of / label

    def judgement(self, split: str, label: str) -> Path:
        """One label's scores of the human-judged pairs, and its figures as a ranker."""
        return self.root / "judgements" / split / label

    def lookup(self, split: str, label: str) -> Path:
        """What answers any block of one label over one split."""
        return self.root / "exports" / split / "lookup" / label

    def plan(self, split: str, name: str) -> Path:
        """Batches of one split with their blocks."""
        return self.root / "exports" / split / "plan" / name

    @property
    def proxy(self) -> Path:
        """A stand-in for images; see relabel.proxy."""
        return self.root / "proxy"

    def report(self, split: str) -> Path:
        """Tables and pictures over all labels."""
        return self.root / "report" / split
