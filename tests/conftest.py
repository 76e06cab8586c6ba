"""What all tests share: where real data is, and a few small corpora."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Folder of mirrored real data (`RELABEL_MIRROR`); tests that need it skip where there is none."""
    folder = os.environ.get("RELABEL_MIRROR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RELABEL_MIRROR names no folder of real data")
    return Path(folder).resolve()
