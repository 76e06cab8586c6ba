"""Contract: what a user must know of captions is said before the work, at the end of `run`, in its JSON, on the page,
on the label in Python, and once per process by `warnings`.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from tests.relabel_cli.runner import invoke

import relabel
from relabel.api import build

LONG = {"a": [f"{'a quiet harbour with boats ' * 60}{end}" for end in ("at dawn", "at dusk")], "b": ["a cat", "a dog"]}
ONE = {"a": ["a dog", "the dog runs", "a brown dog"]}


def write(name: str, images: dict[str, list[str]]) -> str:
    lines = [f"{image},{text}" for image, texts in images.items() for text in texts]
    Path(name).write_text("\n".join(["image,caption", *lines]), encoding="utf-8")
    return name


@pytest.mark.parametrize(
    ("name", "images", "label", "told"),
    [
        ("long", LONG, "sbert", "2 captions are longer than 256 tokens: the rest is not read"),
        ("img", ONE, "cider", "document frequencies come from one image"),
    ],
)
def test_warnings_are_seen(
    name: str, images: dict[str, list[str]], label: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The tokenizer needs no Java.
    command = ["run", write(f"{name}.csv", images), "--label", label, "--set", "sources.cider.tokenizer=lower_split"]
    code, output = invoke(*command, quiet=False)
    assert (code, output.count(f"warning: encoding {label}: {told}")) == (0, 1)
    code, again = invoke(*command, "--json", quiet=False)
    assert f'"warning": "{told}' in again
    assert f"warning: {label}: {told}" in again
    assert told in Path(f"labels/{name}/page/train/report.html").read_text(encoding="utf-8")
    build._warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        settings = {"sources.cider.tokenizer": "lower_split"}
        opened = [relabel.load(f"labels/{name}", label, settings=settings) for _ in range(2)]
    assert [told in text for text in opened[0].warnings] == [True]
    assert [(one.category, told in str(one.message), one.filename) for one in noted] == [(UserWarning, True, __file__)]
