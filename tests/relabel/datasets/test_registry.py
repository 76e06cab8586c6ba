"""Contract: every dataset has a complete manifest, in which every file has a sha256 and its sources in order. Names
that do not exist are refused with those that do.
"""

from __future__ import annotations

import re

import pytest

from relabel.core.errors import UsageError
from relabel.datasets import load_manifest, names

DATASETS = [
    *("coco-captions", "corenlp", "cxc", "eccv", "flickr30k", "flickr8k", "glove", "karpathy-splits"),
    *("pascal-50s", "sick", "stsb", "sugarcrepe-pp", "vsts"),
]


def test_every_dataset_has_a_manifest() -> None:
    assert names() == DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_a_manifest_is_complete(name: str) -> None:
    manifest = load_manifest(name)
    assert manifest.name == name
    assert len({file.name for file in manifest.files}) == len(manifest.files)
    assert manifest.homepage.startswith("https://")
    for file in manifest.files:
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


def test_an_unknown_dataset_or_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"no dataset 'coco' to fetch\. There are coco-captions, corenlp, cxc"):
        load_manifest("coco")
    with pytest.raises(UsageError, match=r"no dataset '\.\./manifest'"):
        load_manifest("../manifest")
    with pytest.raises(UsageError, match=r"stsb has no file 'sts\.csv'\. Did you mean stsb-en-dev\.csv"):
        load_manifest("stsb").file("sts.csv")
