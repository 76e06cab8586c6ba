"""A folder inside the work folder, for files that only the way to an artefact needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relabel.store.workdir import Work


@dataclass
class Inner(Work):
    """Work on files of a folder inside another; the outer work knows file `f` as ``name/f``."""

    outer: Work | None = None
    name: str = ""

    @classmethod
    def of(cls, outer: Work, name: str) -> Inner:
        """Open the inner folder `name`."""
        return cls(outer.folder / name, outer.facts, outer.runtime, outer=outer, name=name)

    def _record(self, name: str) -> Path:
        assert self.outer is not None
        return self.outer._record(f"{self.name}/{name}")
