"""Contract: every block of a lookup of spice equals `Relevance.block` bit for bit, for any pooling, with numpy
alone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel.corpus import References
from relabel.export.lookup import ArtefactRef, lookup_spec, write_lookup
from relabel.export.params import ExportLookupParams
from relabel.sources.spice import Spice, SpiceParams
from relabel.sources.spice.relevance import SceneGraphRelevance
from relabel.store.artefact import build
from relabel.store.manifest import read_manifest
from relabel_train.lookup import open_lookup

_ALONE = """
import sys, numpy as np
from relabel_train.lookup import open_lookup
np.save(sys.argv[2], open_lookup(sys.argv[1]).block([0, 3, 9], [1, 2, 9], dtype=np.float64))
print([m for m in ("numba", "pyarrow", "relabel", "torch") if m in sys.modules])
"""


@pytest.fixture
def exported(tmp_path: Path, drawn: Any, opened: Callable[..., SceneGraphRelevance]) -> tuple[Path, Any]:
    """Export a lookup of 30 images, one with a failed caption, and return it with the relevance."""
    rng = np.random.default_rng(2)
    images: list[Any] = [[drawn(rng) for _ in range(int(rng.integers(1, 8)))] for _ in range(30)]
    images[20][0] = None
    relevance, source = opened(images), Spice(SpiceParams())
    encoding = ArtefactRef(tmp_path / "encoding", read_manifest(tmp_path / "encoding", "encoding"))
    artefact = lookup_spec(relevance.corpus, source, "spice", encoding.manifest, None, ExportLookupParams())
    args = (relevance.corpus, source, artefact, encoding, None, lambda: relevance)
    build(tmp_path / "lookup", artefact, lambda work: write_lookup(*args, work))
    return tmp_path / "lookup", relevance


@pytest.mark.parametrize("pooling", ["paired", "max", "mean", "refs"])
def test_blocks_are_bit_identical_to_the_relevance(pooling: Any, exported: tuple[Path, Any]) -> None:
    folder, relevance = exported
    lookup, corpus = open_lookup(folder, verify=True), relevance.corpus
    assert (lookup.about.kind, lookup.about.source, lookup.about.failed) == ("scene_graphs", "spice", 1)
    rng = np.random.default_rng(4)
    for _ in range(5):
        rows, columns = (rng.integers(0, len(lookup), size).astype(np.int32) for size in (25, 31))
        sets = References.single(rows) if pooling == "paired" else corpus.references(corpus.image[rows])
        expected = relevance.block(sets, columns, pooling)
        np.testing.assert_array_equal(lookup.block(rows, columns, pooling, dtype=np.float64, missing="nan"), expected)
        np.testing.assert_array_equal(lookup.block(rows, columns, pooling, missing="nan"), expected.astype(np.float32))
    assert lookup.block([], [1], pooling).shape == (0, 1)
    assert lookup.block([1], [], pooling).shape == (1, 0)


def test_the_lookup_needs_numpy_only(exported: tuple[Path, Any], tmp_path: Path) -> None:
    folder, relevance = exported
    command = [sys.executable, "-c", _ALONE, str(folder), str(tmp_path / "block.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    sets = relevance.corpus.references(relevance.corpus.image[[0, 3, 9]])
    expected = relevance.block(sets, np.array([1, 2, 9], np.int32))
    np.testing.assert_array_equal(np.load(tmp_path / "block.npy"), expected)
