"""Shared fixtures: real data, COCO's captions, and a small corpus."""

from __future__ import annotations

import gc
import json
import os
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

if TYPE_CHECKING:
    from relabel.corpus import Corpus
    from relabel.corpus.splits import Splitter
    from relabel.stages import Session


def pytest_collection_finish() -> None:
    """Leave the imported modules out of garbage collections, which would take half a second each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Return the folder of real data (`RELABEL_MIRROR`); tests that need it are skipped without it."""
    folder = os.environ.get("RELABEL_MIRROR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RELABEL_MIRROR names no folder of real data")
    return Path(folder).resolve()


def package_file(package: str, path: str) -> Path:
    spec = find_spec(package)
    paths = [Path(f) / path for f in (spec.submodule_search_locations or ())] if spec else []
    if not paths or not paths[0].is_file():
        pytest.skip(f"{package} with its {path} is not installed")
    return paths[0]


@pytest.fixture(scope="session")
def coco_test_ids() -> NDArray[np.int64]:
    """Return the 25,000 caption ids of COCO's test images, from eccv_caption."""
    return np.load(package_file("eccv_caption", "data/coco_test_ids.npy"), allow_pickle=False)


@pytest.fixture(scope="session")
def coco_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write `annotations/captions_{train,val}2014.json` from the SPICE jar of pycocoevalcap; return the folder."""
    folder = tmp_path_factory.mktemp("coco")
    with zipfile.ZipFile(package_file("pycocoevalcap", "spice/spice-1.0.jar")) as jar:
        for name in ("train", "val"):
            jar.extract(f"coco/annotations/captions_{name}2014.json", folder)
    return folder / "coco"


@pytest.fixture(scope="session")
def coco_splitter(coco_test_ids: NDArray[np.int64]) -> Splitter:
    """Return the function that gives COCO's images the splits of retrieval papers."""
    from relabel.corpus.splits import split_by_ids
    from relabel.datasets.cxc import image_ids

    return partial(split_by_ids, test_captions=coco_test_ids, val_images=image_ids("val"))


@pytest.fixture(scope="session")
def coco(coco_folder: Path, coco_splitter: Splitter) -> Corpus:
    """Return all of COCO's captions without tokens."""
    from relabel.corpus import Corpus
    from relabel.corpus.readers.coco import coco_files, read_coco

    return Corpus.from_captions(read_coco(coco_files(coco_folder), coco_splitter))


WORDS = "a the man dog on red bus with two cats in street riding big café"


@pytest.fixture(scope="session")
def small_project(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return 60 images with 1 to 7 captions in three splits, encoded, with neighbours, and exported as lookups of all.

    Labels: same_image, cbow (vectors), cider and cider_plain (features); neighbours of cbow and cider. Texts repeat
    within and across images; ids hold more than ASCII.
    """
    pytest.importorskip("numba", reason="the `pipeline` extra is not installed")
    from relabel import stages
    from relabel.config import Config, load_config
    from relabel.core.runtime import Runtime

    folder = tmp_path_factory.mktemp("small")
    words = WORDS.split()
    rng = np.random.default_rng(7)
    with (folder / "captions.jsonl").open("w", encoding="utf-8") as file:
        for image in range(60):
            text = ""
            for position in range(int(rng.integers(1, 8))):
                again = position and rng.random() < 0.1
                text = text if again else " ".join(rng.choice(words[: 8 + image // 6], int(rng.integers(1, 14))))
                split = ("train", "val", "test")[min(2, image // 20)]
                names = {"caption_id": f"ç{image}-{position}", "image_id": f"图{image}", "split": split}
                file.write(json.dumps({**names, "text": text}) + "\n")
    with (folder / "vectors.txt").open("w", encoding="utf-8") as file:
        for word in words[:-1]:
            file.write(" ".join([word, *(f"{x:.4f}" for x in rng.normal(size=16))]) + "\n")
    settings = ["ingest.format=jsonl", f"ingest.path={folder / 'captions.jsonl'}"]
    settings += ["ingest.expected={}"]
    sources = {
        "same_image": {"source": "same_image"},
        "cbow": {"source": "cbow", "vectors": str(folder / "vectors.txt"), "tokenizer": "lower_split"},
        "cider": {"source": "cider", "tokenizer": "lower_split"},
        "cider_plain": {"source": "cider", "tokenizer": "lower_split", "variant": "cider"},
        "meteor": {"source": "meteor"},
    }
    settings += ["neighbours.k=8", f"sources={json.dumps(sources)}"]
    config = Config(**load_config(None, settings).model_dump())  # values count as those of the parameter file
    session = stages.Session(config, Runtime(data=folder / "data", threads=1, rows_per_shard=50), folder / "labels")
    stages.ingestion(session).run()
    for label in ("same_image", "cbow", "cider", "cider_plain"):
        stages.encoding(session, label, "all").run()
        if label in ("cbow", "cider"):
            stages.neighbour_table(session, label, "all").run()
        stages.lookup_export(session, label, "all").run()
    return session
