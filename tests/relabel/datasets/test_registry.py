"""Contract: every dataset has a complete manifest. Every file has a sha256, which equals that of the file on this
machine, if any. Manifests are found in a checkout and in an installed wheel.
"""

from __future__ import annotations

import re
import zipfile
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest

from relabel.core.errors import UsageError
from relabel.datasets import load_manifest, names
from relabel.datasets.registry import Source

DATASETS = [
    *("coco-captions", "corenlp", "cxc", "eccv", "flickr30k", "flickr8k", "glove", "karpathy-splits"),
    *("pascal-50s", "sick", "stsb", "sugarcrepe-pp", "vsts"),
]
FILES = [(d, f.name) for d in DATASETS for f in load_manifest(d).files]
PACKAGED = [(d, f) for d, f in FILES if any(s.package for s in load_manifest(d).file(f).sources)]


def packaged(source: Source) -> Path:
    assert source.package
    try:
        return Path(str(metadata.distribution(source.package).locate_file(source.path)))
    except metadata.PackageNotFoundError:
        pytest.skip(f"{source.package} is not installed")


def test_every_dataset_has_a_manifest() -> None:
    assert names() == DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_a_manifest_is_complete(name: str) -> None:
    manifest = load_manifest(name)
    assert manifest.name == name
    assert len({file.name for file in manifest.files}) == len(manifest.files)
    for text in (manifest.title, manifest.purpose, manifest.licence, manifest.citation):
        assert len(text) > 5
        assert "\n" not in text.strip()
    assert manifest.homepage.startswith("https://")
    for file in manifest.files:
        assert file.holds
        for content in file.contents:
            assert re.fullmatch("[0-9a-f]{64}", content.sha256)
            assert content.bytes > 0
        kinds = [[bool(getattr(s, kind)) for kind in ("package", "url", "maven", "mirror")] for s in file.sources]
        assert kinds == sorted(kinds, reverse=True)  # order: package, URL, mirror
        assert all(sum(kind) == 1 for kind in kinds)
        assert any(s.mirror for s in file.sources)
        for source in file.sources:
            # An archive is verified before a member is read from it.
            assert bool(source.archive) == bool(source.url and source.member)
            assert source.url is None or source.url.startswith(("https://", "http://images.cocodataset.org/"))
            assert all(".." not in path and not path.startswith("/") for path in (source.path, source.mirror or ""))


@pytest.mark.parametrize(("name", "file"), PACKAGED)
def test_hashes_equal_those_of_the_packages(name: str, file: str) -> None:
    manifest_file = load_manifest(name).file(file)
    for source in manifest_file.sources:
        if source.package:
            path = packaged(source)
            if name == "corenlp" and not path.is_file():
                pytest.skip("the package's own downloader, which puts it there, has not run")
            raw = path.read_bytes() if source.member is None else zipfile.ZipFile(path).read(source.member)
            assert (len(raw), sha256(raw).hexdigest()) == (manifest_file.bytes, manifest_file.sha256)


def test_hashes_equal_those_of_the_mirror(mirror: Path) -> None:
    compared = []
    for name, file in FILES:
        manifest_file = load_manifest(name).file(file)
        for source in manifest_file.sources:
            if source.mirror and (mirror / source.mirror).is_file():
                raw = (mirror / source.mirror).read_bytes()
                assert (len(raw), sha256(raw).hexdigest()) in {(c.bytes, c.sha256) for c in manifest_file.contents}, (
                    file
                )
                compared.append(file)
    if not compared:
        pytest.skip("the mirror has none of the files")


def test_an_unknown_dataset_or_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"no dataset 'coco' to fetch\. There are coco-captions, corenlp, cxc"):
        load_manifest("coco")
    with pytest.raises(UsageError, match=r"no dataset '\.\./manifest'"):
        load_manifest("../manifest")
    with pytest.raises(UsageError, match=r"stsb has no file 'sts\.csv'\. Did you mean stsb-en-dev\.csv"):
        load_manifest("stsb").file("sts.csv")
