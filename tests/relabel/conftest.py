"""COCO's captions as every installation of pycocoevalcap holds them, read once a test run; a Java that misbehaves."""

from __future__ import annotations

import shlex
import sys
import textwrap
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.corpus import Corpus


def package_file(package: str, path: str) -> Path:
    spec = find_spec(package)
    found = [Path(f) / path for f in (spec.submodule_search_locations or ())] if spec else []
    if not found or not found[0].is_file():
        pytest.skip(f"{package} with its {path} is not installed")
    return found[0]


@pytest.fixture(scope="session")
def coco_test_ids() -> NDArray[np.int64]:
    """The 25,000 caption ids of COCO's test images, from eccv_caption."""
    return np.load(package_file("eccv_caption", "data/coco_test_ids.npy"), allow_pickle=False)


@pytest.fixture(scope="session")
def coco_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `annotations/captions_{train,val}2014.json`, from the SPICE jar of pycocoevalcap."""
    folder = tmp_path_factory.mktemp("coco")
    with zipfile.ZipFile(package_file("pycocoevalcap", "spice/spice-1.0.jar")) as jar:
        for name in ("train", "val"):
            jar.extract(f"coco/annotations/captions_{name}2014.json", folder)
    return folder / "coco"


@pytest.fixture(scope="session")
def coco(coco_folder: Path, coco_test_ids: NDArray[np.int64]) -> Corpus:
    """All of COCO's captions, not tokenised."""
    from relabel.readers.coco import coco_files, read_coco
    from relabel.splits import cxc_val_images, split_by_ids

    return Corpus.from_captions(read_coco(coco_files(coco_folder), split_by_ids(coco_test_ids, cxc_val_images())))


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Install a `java` that answers `-version` and otherwise runs the given Python, through $RELABEL_JAVA."""

    def install(code: str) -> Path:
        folder = tmp_path / "fake-java"
        folder.mkdir(exist_ok=True)
        version = "if '-version' in sys.argv: sys.exit(print('openjdk version \"17.0.0\"', file=sys.stderr))"
        (folder / "main.py").write_text(f"import os, sys, time\n{version}\n{textwrap.dedent(code)}", encoding="utf-8")
        java = folder / "java"
        java.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S -E {shlex.quote(str(folder / "main.py"))} "$@"\n'
        )
        java.chmod(0o755)
        monkeypatch.setenv("RELABEL_JAVA", str(java))
        return java

    return install
