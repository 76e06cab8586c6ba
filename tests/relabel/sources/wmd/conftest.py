"""Opened encodings of wmd."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relabel.sources.wmd.oracle import Encode, encode_in


@pytest.fixture
def encode(tmp_path: Path) -> Encode:
    """Return `encode_in`."""
    return lambda *given, **params: encode_in(tmp_path, *given, **params)
