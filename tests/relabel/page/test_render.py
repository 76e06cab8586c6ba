"""Contract: a page is one file with well-formed elements; its bytes follow from its content; texts are data, whatever
they hold."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from tests.relabel.page.page_of_captions import HOSTILE, example_data, example_page, texts

from relabel.page.render import render_page


class Outline(HTMLParser):
    """Elements of a page with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def page() -> str:
    return example_page()


def blob(page: str, name: str) -> bytes:
    (body,) = re.findall(rf'<script type="application/octet-stream" id="blob-{name}">([A-Za-z0-9+/=]*)</script>', page)
    return zlib.decompress(base64.b64decode(body))


def test_elements_are_nested_and_ids_are_unique(page: str) -> None:
    outline = Outline(page)
    assert outline.open == []
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in outline.elements:
        target = attributes.get("href") or ""
        if tag == "a":
            assert target.removeprefix("#") in ids
        for reference in ("aria-labelledby", "for"):
            assert attributes.get(reference) in (None, *ids)
    # Every region that scrolls is reachable by keyboard, and named.
    for _, attributes in outline.elements:
        if "scroll" in str(attributes.get("class")).split():
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
    headings = [tag for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert headings.count("h1") == 1
    assert all(int(b[1]) - int(a[1]) <= 1 for a, b in pairwise(headings))


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    outline = Outline(page)
    assert not [a for tag, a in outline.elements if tag in ("link", "img", "iframe", "object", "base")]
    assert not [a for _, a in outline.elements if "src" in a]
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in "".join(outline.texts["style"])


def test_texts_are_data(page: str) -> None:
    assert "window.stolen" not in page  # only in the compressed data
    assert json.loads(blob(page, "data"))["captions"] == [" ".join(text.split()) for text in texts(60)]
    assert HOSTILE in texts(60)
    assert "<of>" not in page
    assert "&lt;b&gt;0.74&lt;/b&gt;" in page
    assert "{{" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_a_page_without_judgements_hides_their_sections() -> None:
    bare = render_page("mine, val", [], (), example_data() | {"headline": {}, "judged": {}})
    hidden = {a["id"] for tag, a in Outline(bare).elements if tag == "section" and "hidden" in a}
    assert hidden == {"agreement", "pairs", "disagreement"}
