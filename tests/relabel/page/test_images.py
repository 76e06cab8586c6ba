"""Contract: a page refers to images by address: a file of a folder that an id names without doubt, or a URL with it. No
image is copied, and the page may load images from that place only.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relabel.page.page_of_captions import example_page

from relabel.core.errors import MissingError, UsageError
from relabel.page.images import Images


def test_a_file_is_found_by_what_ids_call_it(tmp_path: Path) -> None:
    for name in ("COCO_val2014_000000391895.jpg", "a/dog 1.png", "b/cat.jpg", "c/cat.jpg", "notes.txt", "x#y.JPG"):
        file = tmp_path / "images" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    images = Images.at(str(tmp_path / "images"), tmp_path / "page" / "test")
    found = {
        "391895": "../../images/COCO_val2014_000000391895.jpg",
        "COCO_val2014_000000391895.jpg": "../../images/COCO_val2014_000000391895.jpg",
        "dog 1": "../../images/a/dog%201.png",
        "other/folder/dog 1.png": "../../images/a/dog%201.png",
        "b/cat": "../../images/b/cat.jpg",
        "cat": "",  # of two files
        "cat.jpg": "",
        "x#y": "../../images/x%23y.JPG",
        "notes": "",
        "7": "",
    }
    assert {name: images.address(name) for name in found} == found
    before = images.config
    (tmp_path / "images" / "new.jpg").touch()
    assert Images.at(str(tmp_path / "images"), tmp_path / "page" / "test").config != before


def test_a_template_is_filled_with_ids() -> None:
    images = Images.at("https://example.org:8000/v/{image_id:0>6}.jpg", Path("page"))
    assert (images.address("42"), images.origin) == (
        "https://example.org:8000/v/000042.jpg",
        "https://example.org:8000",
    )
    assert Images.at("https://example.org/{image_id}", Path("page")).address("a b?") == "https://example.org/a%20b%3F"
    assert Images.at("{image_id}", Path("page")).address("https://a.org/b.jpg?x=1") == "https://a.org/b.jpg?x=1"
    with pytest.raises(UsageError, match="not a URL template"):
        Images.at("https://example.org/{image_id}/{other}.jpg", Path("page"))
    with pytest.raises(MissingError, match="no such folder of images"):
        Images.at("nowhere", Path("page"))


def test_a_page_may_load_images_from_their_place_only() -> None:
    policy = "img-src data: {}"
    assert policy.format('"') in example_page()
    images = Images.at("https://example.org/{image_id}.jpg", Path("page"))
    shown = example_page(images=images)
    assert policy.format("https://example.org") in shown
    assert 'src="https://example.org/9001.jpg"' in shown
