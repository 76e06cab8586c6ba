"""Versions of formats and sources, from `versions.yaml` of the package."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[1] / "versions.yaml"


def version_of(kind: str, source: str | None = None) -> int | None:
    """Return the version of a kind of artefact, or of the encodings of a source; None if the file has none."""
    version = _versions().get(kind)
    return version.get(source) if isinstance(version, dict) else version


@cache
def _versions() -> dict[str, Any]:
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8")))
