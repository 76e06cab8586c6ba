"""A small dataset that tests change, a search by sorting, and a project over both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.runtime import Runtime
from relabel.stages import Job, Project
from relabel.store.manifest import read_manifest, read_parts

WORDS = tuple("a dog cat man red blue bus runs sits on the grass street with two birds near water".split())  # noqa: SIM905


class Line(NamedTuple):
    """A caption of the dataset."""

    caption: str
    image: str
    split: str
    text: str


@dataclass
class Dataset:
    """Captions in a file, and projects with the labels `near` (vectors), `cider` (features), `words` and `same`."""

    folder: Path
    settings: list[str] = field(default_factory=list)

    def write(self, lines: Iterable[Line]) -> None:
        names = ("caption_id", "image_id", "split", "text")
        body = "".join(json.dumps(dict(zip(names, line, strict=True))) + "\n" for line in lines)
        (self.folder / "captions.jsonl").write_text(body, encoding="utf-8")

    @property
    def all_settings(self) -> list[str]:
        return [*SETTINGS, *self.settings]

    def project(self, *settings: str, **runtime: Any) -> Project:
        return Project(Config(**load_config(None, [*self.all_settings, *settings]).model_dump()), Runtime(**runtime))

    def encoded(self, lines: Iterable[Line], split: str = "all", labels: Iterable[str] = ("near",)) -> Project:
        self.write(lines)
        stages.ingest(self.project()).run()
        project_of = self.project()
        for label in labels:
            stages.encode(project_of, label, split).run()
        return project_of


SETTINGS = [
    "ingest.format=jsonl",
    "ingest.expected={}",
    "ingest.path=captions.jsonl",
    "ingest.tokenizer=none",
    "encode.rows_per_shard=40",
    "neighbours.k=7",
    "sources={same: {source: same_image}, words: {source: meteor}, "
    "cider: {source: cider, tokenizer: lower_split}, "
    "near: {source: cbow, vectors: words.txt, tokenizer: lower_split}}",
]


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Return an empty dataset in a new folder, and word vectors for its captions."""
    monkeypatch.chdir(tmp_path)
    vectors = np.random.default_rng(5).standard_normal((len(WORDS), 6))
    rows = [f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(WORDS, vectors, strict=True)]
    (tmp_path / "words.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return Dataset(tmp_path)


def lines_of(images: int, split: str, first: int = 0, seed: int = 0) -> list[Line]:
    """Draw captions of random words, 4 to 6 per image; one in five repeats an earlier text, which makes ties."""
    rng, lines = np.random.default_rng(seed + first), list[Line]()
    for image in range(first, first + images):
        for position in range(int(rng.integers(4, 7))):
            text = " ".join(rng.choice(WORDS, int(rng.integers(3, 7))))
            if lines and rng.random() < 0.2:
                text = lines[int(rng.integers(len(lines)))].text
            lines.append(Line(f"c{image * 10 + position}", f"i{image}", split, text))
    return lines


@pytest.fixture
def make_lines() -> Callable[..., list[Line]]:
    """Return `lines_of`."""
    return lines_of


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of an artefact except the manifest, which holds times."""
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name != "manifest.json"}


@pytest.fixture
def read_files() -> Callable[[Path], dict[str, bytes]]:
    """Return `files_of`."""
    return files_of


@pytest.fixture
def read_table() -> Callable[[Job], pa.Table]:
    """Read the shards of a job's artefact as one table."""
    return lambda job: read_parts(job.out, read_manifest(job.out, "neighbours"))
