"""Projects of a few captions in a temporary folder, whose artefacts show the size of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from relabel.core.progress import SILENT
from relabel.corpus import Corpus
from relabel.corpus.build import SCHEMA
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.manifest import Manifest


@dataclass(frozen=True)
class Sampled(Project):
    """A project over a corpus that lies in no folder."""

    given: Corpus | None = None

    @cached_property
    def corpus(self) -> Corpus:
        """The given corpus."""
        assert self.given is not None
        return self.given


@dataclass(frozen=True)
class Ran:
    """Artefact of a sample."""

    folder: Path
    manifest: Manifest

    @classmethod
    def of(cls, job: Job) -> Ran:
        """Run a job."""
        manifest, _ = job.run()
        return cls(job.out, manifest)

    @property
    def bytes(self) -> int:
        """Bytes of all its files."""
        return sum(entry.bytes for entry in self.manifest.files.values())


@contextmanager
def sampled(project: Project, rows: range, captions: int) -> Iterator[Project]:
    """Open a project over about so many of the captions, in a folder of its own that goes away."""
    with TemporaryDirectory(prefix="relabel-") as folder:
        runtime = replace(project.runtime, progress=SILENT, workers=0, scheduler=None)
        yield Sampled(project.config, runtime, Path(folder), sample(project.corpus, rows, captions))


def sample(corpus: Corpus, rows: range, captions: int) -> Corpus:
    """Take whole images, evenly spread over some rows, until there are about so many captions.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Of whole images.
    captions : int

    Returns
    -------
    Corpus
        At least one image; all of `rows` where they are no more than asked for.
    """
    first, last = int(corpus.image[rows.start]), int(corpus.image[rows.stop - 1])
    images = last + 1 - first
    count = max(1, min(images, round(images * captions / len(rows))))
    chosen = first + np.unique(np.linspace(0, images - 1, count).astype(np.int64))
    sets = corpus.references(chosen.tolist(), first=None)
    table = corpus.table.take(pa.array(sets.rows))
    image = np.repeat(np.arange(len(sets), dtype=np.int32), np.diff(sets.indptr))
    for name, values in {"row": np.arange(len(table), dtype=np.int32), "image": image}.items():
        at = SCHEMA.get_field_index(name)
        table = table.set_column(at, SCHEMA.field(name), pa.array(values))
    return Corpus.from_table(table)
