"""Contract: what a user must know of captions is said before the work, at the end of `run`, in its JSON, on the page,
on the label in Python, and once per process by `warnings`. What the model cannot read is never equal to anything.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.relabel_cli.runner import invoke

import relabel
from relabel.api import build

LANGUAGES = {
    "zh": ["一只棕色的狗在沙滩上奔跑", "沙滩上有一只狗"],
    "th": ["สุนัขสีน้ำตาลวิ่งบนชายหาด"],
    "ar": ["كلب بني يركض على الشاطئ"],
    "de": ["Ein brauner Hund rennt am Strand"],
    "en": ["A brown dog runs on the beach", "Two cats sleep on the sofa"],
    "em": ["🐕🏖️", "🐈🐈🛋️"],
}
LONG = {"a": [f"{'a quiet harbour with boats ' * 60}{end}" for end in ("at dawn", "at dusk")], "b": ["a cat", "a dog"]}
ONE = {"a": ["a dog", "the dog runs", "a brown dog"]}


def write(name: str, images: dict[str, list[str]]) -> str:
    lines = [f"{image},{text}" for image, texts in images.items() for text in texts]
    Path(name).write_text("\n".join(["image,caption", *lines]), encoding="utf-8")
    return name


@pytest.mark.filterwarnings("ignore:sbert")
def test_captions_that_the_model_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = invoke("run", write("multi.csv", LANGUAGES), "--label", "sbert", quiet=False)
    told = "all-MiniLM-L6-v2 does not know all words of 6 of 9 captions"
    assert 0 < output.index(told) < output.index("encoding sbert: built")
    assert output.count(told) == 2  # before the work, and at the end
    assert "--set sources.sbert.model=paraphrase-multilingual-MiniLM-L12-v2" in output
    assert (code, "3 captions could not be encoded" in output) == (5, True)
    label = relabel.load("labels/multi", "sbert")
    block = label.block(label.image_ids, label.caption_ids)
    unread = np.array(["th" in name or "em" in name for name in label.caption_ids])
    np.testing.assert_array_equal(np.isnan(block).all(axis=0), unread)
    code, output = invoke("nearest", "🐕", "--dataset", "multi")
    assert (code, "the model knows no word of it" in output) == (2, True)
    _, output = invoke("run", write("thai.csv", {"a": LANGUAGES["th"], "b": LANGUAGES["em"]}), "--label", "sbert")
    assert "all-MiniLM-L6-v2 knows no word of the captions" in output


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


def test_what_was_left_out_is_said_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a run that finds everything finished, and in Python."""
    monkeypatch.chdir(tmp_path)
    write("odd.csv", {"a": ["a dog", "", "a dog"], "b": ["a cat"]})
    for _ in range(2):
        code, output = invoke("run", "odd.csv", "--label", "cider_lower_split,same_image")
        assert code == 0, output
        assert "left out: 1 empty caption (first: odd.csv:3)" in output
        assert "repeated: 1 caption with a text that the image already has (first: odd.csv:4)" in output
    # Of the captions, and not of each label.
    page = Path("labels/odd/page/train/report.html").read_text(encoding="utf-8")
    assert page.count("left out: 1 empty caption") == page.count("odd: left out") == 1
    build._warn_once.cache_clear()
    with pytest.warns(UserWarning, match="left out: 1 empty caption"):
        label = relabel.load("labels/odd", "cider_lower_split")
    # Ids without the prefix of the dataset.
    np.testing.assert_array_equal(label.block(["a"], ["b#0"]), label.block(["odd:a"], ["odd:b#0"]))
    code, output = invoke("nearest", "--id", "b#0", "--label", "cider_lower_split", "-k", "1")
    assert (code, "odd:" in output, "same image" in output) == (0, True, False), output
    code, output = invoke("nearest", "--id", "a#0", "--label", "cider_lower_split", "-k", "1")
    assert (code, output.splitlines()[-1]) == (0, "= a caption of the same image"), output


def test_warnings_about_a_table_name_rows_and_parameters_of_python() -> None:
    build._warn_once.cache_clear()
    rows = [("a", "a dog"), ("a", "a dog"), ("b", "")]
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        label = relabel.label(rows, "cider", tokenizer="lower_split")
    empty, repeated, *_ = label.warnings
    assert "(first: captions: row 2)" in empty
    assert "(first: captions: row 1)" in repeated
    assert "; duplicates='drop' leaves them out" in repeated
    assert {one.filename for one in noted} == {__file__}


def test_parameters_of_captions_beside_those_of_a_source() -> None:
    columns = {"file": ["1.jpg", "2.jpg"], "words": ["a dog", "a cat"]}
    given = {"text_column": "words", "image_id_column": "file"}
    label = relabel.label(columns, "cider", tokenizer="lower_split", **given)
    assert label.ids == ["captions:1.jpg#0", "captions:2.jpg#0"]
