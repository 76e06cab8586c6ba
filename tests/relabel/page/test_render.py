"""Contract: a page is one file that loads nothing; texts are data, whatever they hold."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html import escape
from html.parser import HTMLParser

import pytest
from tests.relabel.page.page_of_captions import HOSTILE, example_page, texts


class Outline(HTMLParser):
    """Elements of a page with their attributes; each must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


@pytest.fixture(scope="module")
def page() -> str:
    return example_page()


def blob(page: str, name: str) -> bytes:
    (body,) = re.findall(rf'<script type="application/octet-stream" id="blob-{name}">([A-Za-z0-9+/=]*)</script>', page)
    return zlib.decompress(base64.b64decode(body))


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    elements = Outline(page).elements
    assert not [a for tag, a in elements if tag in ("link", "img", "iframe", "object", "base") or "src" in a]
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert "url(" not in "".join(re.findall("<style.*?</style>", page, re.DOTALL))


def test_texts_are_data(page: str) -> None:
    assert "<script>window.stolen" not in page
    assert json.loads(blob(page, "data"))["captions"] == [" ".join(text.split()) for text in texts(60)]
    assert "<of>" not in page
    assert "&lt;b&gt;0.74&lt;/b&gt;" in page
    # A text may have such marks itself.
    assert escape(HOSTILE) in page
    assert "{{" not in re.sub(r"<script.*?</script>", "", page.replace(escape(HOSTILE), ""), flags=re.DOTALL)
