"""Captions that a file or folder gives, for the tests of readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relabel.core.runtime import Runtime
from relabel.corpus.build import Caption
from relabel.corpus.params import IngestParams
from relabel.corpus.readers import Input, open_input


def opened(path: Path, **params: Any) -> Input:
    return open_input(IngestParams(**{"dataset": "d", "path": path, **params}), Runtime())


def captions_of(source: Input) -> list[Caption]:
    return list(source.read())


def read(path: Path, **params: Any) -> list[Caption]:
    """Return the captions in file order."""
    return captions_of(opened(path, **params))
