"""Contract: every dataset has a complete manifest. Every file has a sha256, which equals that of the file on this
machine, if any. Manifests are found in a checkout and in an installed wheel.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest

from relabel.core.errors import CheckError, UsageError
from relabel.datasets import load_manifest, names
from relabel.datasets.registry import MavenSource, MirrorSource, PackageSource, UrlSource

DATASETS = [
    *("coco-captions", "corenlp", "cxc", "eccv", "flickr30k", "flickr8k", "glove", "karpathy-splits"),
    *("pascal-50s", "sick", "stsb", "sugarcrepe-pp", "vsts"),
]
FILES = [(d, f.name) for d in DATASETS for f in load_manifest(d).files]
PACKAGED = [(d, f) for d, f in FILES if any(isinstance(s, PackageSource) for s in load_manifest(d).file(f).sources)]


def packaged(source: PackageSource) -> Path:
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
        kinds = [(PackageSource, UrlSource, MavenSource, MirrorSource).index(type(s)) for s in file.sources]
        assert kinds == sorted(kinds)  # order: package, URL, mirror
        assert MirrorSource in map(type, file.sources)
        # An archive is verified before a member is read from it.
        assert all(s.archive for s in file.sources if isinstance(s, UrlSource) and s.member)


def test_files_are_distinct() -> None:
    hashes = [c.sha256 for d in DATASETS for f in load_manifest(d).files for c in f.contents]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(("name", "file"), PACKAGED)
def test_hashes_equal_those_of_the_packages(name: str, file: str) -> None:
    manifest_file = load_manifest(name).file(file)
    for source in manifest_file.sources:
        if isinstance(source, PackageSource):
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
            if isinstance(source, MirrorSource) and (mirror / source.mirror).is_file():
                raw = (mirror / source.mirror).read_bytes()
                assert (len(raw), sha256(raw).hexdigest()) in {(c.bytes, c.sha256) for c in manifest_file.contents}, (
                    file
                )
                compared.append(file)
    if not compared:
        pytest.skip("the mirror has none of the files")


@pytest.mark.parametrize(("split", "crc"), [("train", 0x35A1FCDB), ("val", 0x8EF135F3)])
def test_both_editions_of_coco_hold_the_same_captions(split: str, crc: int) -> None:
    """Compare the jar's edition with that of 2017, which differs in `info`, `coco_url` and the space after commas.

    The CRC-32 is that of the member in cocodataset.org's archive.
    """
    file = load_manifest("coco-captions").file(f"captions_{split}2014.json")
    (source,) = (s for s in file.sources if isinstance(s, PackageSource))
    assert source.member is not None
    body = json.loads(zipfile.ZipFile(packaged(source)).read(source.member))
    body["info"] = {
        "description": "COCO 2014 Dataset",
        "url": "http://cocodataset.org",
        "version": "1.0",
        "year": 2014,
        "contributor": "COCO Consortium",
        "date_created": "2017/09/01",
    }
    for image in body["images"]:
        image["coco_url"] = f"http://images.cocodataset.org/{split}2014/{image['file_name']}"
    raw = json.dumps(body, separators=(",", ": ")).encode()
    assert zlib.crc32(raw) == crc
    assert [(c.bytes, c.sha256) for c in file.also] == [(len(raw), sha256(raw).hexdigest())]


def test_an_unknown_dataset_or_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"no dataset 'coco' to fetch\. There are coco-captions, corenlp, cxc"):
        load_manifest("coco")
    with pytest.raises(UsageError, match=r"no dataset '\.\./manifest'"):
        load_manifest("../manifest")
    with pytest.raises(UsageError, match=r"stsb has no file 'sts\.csv'\. Did you mean stsb-en-dev\.csv"):
        load_manifest("stsb").file("sts.csv")


VALID = """
name: tiny
title: t
purpose: p
licence: l
citation: c
homepage: h
files:
- {name: a.txt, holds: h, bytes: 1, sha256: %s, sources: [{mirror: a.txt}]}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a" * 64, "abc", "sha256"),
        ("mirror: a.txt", "mirror: ../a.txt", "not a path below a folder"),
        ("name: a.txt", "name: ../a.txt", "files.0.name"),
        ("mirror: a.txt", "url: ftp://host/a.txt", "url"),
        ("title: t", "titel: t", "titel"),
    ],
)
def test_a_bad_manifest_is_refused(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relabel.datasets.registry.manifests_folder", lambda: tmp_path)
    good = VALID % ("a" * 64)
    (tmp_path / "tiny.yaml").write_text(good)
    assert load_manifest("tiny").files[0].name == "a.txt"
    assert old in good
    (tmp_path / "tiny.yaml").write_text(good.replace(old, new, 1))
    with pytest.raises(CheckError, match=re.escape(said)) as caught:
        load_manifest("tiny")
    assert caught.value.where == str(tmp_path / "tiny.yaml")
