"""Contract: a page works in Chromium, light and dark, 400 to 1,400 pixels wide: no message on the console, no request,
no horizontal scrolling, no text that is cut; images of a folder are shown, and a missing one leaves its text; a
search lists nearest captions, and the table of disagreements is sorted by its headings.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from tests.relabel.page.page_of_captions import LABELS, PAIRS, example_page, nearest_of, texts

from relabel.page.images import Images

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SIZES = [(scheme, width) for scheme in ("light", "dark") for width in (1400, 800, 400)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    chromium = which("chromium") or which("chromium-browser") or which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        # Chromium's sandbox does not start for root.
        running = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(example_page(), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, file: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page in a window; the test fails if the page wrote to the console, failed, or asked for anything."""
    scheme, width = getattr(request, "param", SIZES[0])
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    events: list[str] = []
    page.on("console", lambda message: events.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("request", lambda call: None if call.url == file.as_uri() else events.append(call.url))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]")
    yield page
    assert events == []
    assert page.evaluate("window.stolen") is None
    context.close()


def wait_for_text(page: Any, selector: str, text: str) -> None:
    """Wait until an element shows a text, by its selector: the page forbids the functions that playwright polls."""
    page.wait_for_selector(f"{selector}:has-text('{text}')")


def hits(page: Any, column: int) -> list[str]:
    """Return the texts of one label's nearest captions."""
    texts: list[str] = page.locator("#columns > div").nth(column).locator("li button").all_inner_texts()
    return texts


@pytest.mark.parametrize("opened", SIZES, indirect=True)
def test_a_page_fits_its_window_in_both_schemes(opened: Any) -> None:
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Every chart is drawn, within the window.
    plots = opened.locator(".plot .main-svg")
    assert plots.count() >= 6
    for box in (plots.nth(i).bounding_box() for i in range(plots.count())):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= opened.viewport_size["width"] + 1
    # No chart is wider than its column, before any change of the window.
    widths = opened.evaluate(
        "[...document.querySelectorAll('.plot')]"
        ".map(node => [node.querySelector('.main-svg').clientWidth, node.clientWidth])"
    )
    assert all(chart <= column + 1 for chart, column in widths)
    background, ink = opened.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    lightness = [sum(map(int, colour.strip("rgb()").split(","))) / 765 for colour in (background, ink)]
    dark = opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (lightness[0] < 0.2 and lightness[1] > 0.8) if dark else (lightness[0] > 0.8 and lightness[1] < 0.2)


@pytest.mark.parametrize("opened", SIZES, indirect=True)
def test_texts_are_shown_in_full(opened: Any) -> None:
    cells = opened.locator("#false-negatives td").all_inner_texts()
    assert [cell.strip() for cell in cells] == [text.strip() for row in PAIRS.rows for text in row[1:]]
    # Nothing is hidden inside the cells, and the table is not wider than the page.
    for selector in ("#false-negatives td", "#false-negatives .scroll"):
        nodes = f"[...document.querySelectorAll('{selector}')]"
        assert opened.evaluate(f"{nodes}.every(node => node.scrollWidth <= node.clientWidth + 1)")


def test_the_legend_has_the_labels_and_colours_in_use(opened: Any) -> None:
    assert opened.locator("#legend b").all_inner_texts() == list(LABELS)
    assert opened.locator("#relevance .kinds li:visible").count() == 3
    assert opened.locator("ul.alert li").count() == 2


def test_images_of_a_folder_are_shown(browser: Any, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "images").mkdir()
    (tmp_path / "page").mkdir()
    for number in (1, 3, 4):
        Image.new("RGB", (60, 40), "teal").save(tmp_path / "images" / f"900{number}.png")
    images = Images.at(str(tmp_path / "images"), tmp_path / "page")
    (tmp_path / "images" / "9004.png").unlink()  # known, and gone when the page is opened
    (tmp_path / "page" / "report.html").write_text(example_page(images=images), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page" / "report.html").as_uri())
    page.wait_for_selector("body[data-ready]")
    page.locator("#false-negatives").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelectorAll('#false-negatives img').length === 2", polling=100)
    loaded = "[...document.querySelectorAll('#false-negatives img')].map(node => node.complete && node.naturalWidth)"
    assert page.evaluate(loaded) == [60, 60]
    page.close()


def test_a_search_lists_the_nearest_captions_of_each_label(opened: Any) -> None:
    opened.fill("#query", "zebra bus")
    wait_for_text(opened, "#matches", "3 captions")
    lines, searched = texts(60), nearest_of(60)
    matches = [i for i, text in enumerate(lines) if "zebra" in text and "bus" in text]
    assert opened.locator("#results button").all_inner_texts() == [lines[i] for i in matches]
    assert lines[matches[0]] in opened.inner_text("#chosen-title")
    for column, nearest in enumerate(searched.values()):
        assert hits(opened, column) == [lines[i] for i in nearest.candidate[nearest.reference == matches[0]]]
    scores = opened.locator("#columns > div").nth(1).locator("li > span").all_inner_texts()
    sbert, cider = searched["sbert"], searched["cider"]
    assert [float(s) for s in scores] == pytest.approx(sbert.score[sbert.reference == matches[0]].tolist())
    # A caption of the same image is marked; a click on a result shows its own neighbours.
    candidates = cider.candidate.reshape(60, 4)
    number = next(i for i in range(60) if (candidates[i] // 5 == i // 5).any() and i != 7)
    opened.fill("#query", f"coco:{number:03d}")
    wait_for_text(opened, "#chosen-title .id", f"coco:{number:03d}")
    marked = opened.locator("#columns > div").first.locator(".tag", has_text="same image").count()
    assert marked == int(np.sum(candidates[number] // 5 == number // 5))
    opened.locator("#columns > div").first.locator("li button").first.click()
    assert hits(opened, 0) == [lines[i] for i in candidates[candidates[number][0]]]


def test_disagreements_are_sorted_by_their_headings(opened: Any) -> None:
    def column(number: int) -> list[str]:
        cells: list[str] = opened.locator(f"#worst tbody td:nth-child({number})").all_inner_texts()
        return cells

    gaps = [abs(float(gap)) for gap in column(1)]
    assert len(gaps) == 40
    assert gaps == sorted(gaps, reverse=True)
    opened.click("#worst th[data-key=human] button")
    human = [float(value) for value in column(3)]
    assert human == sorted(human, reverse=True)
    assert opened.get_attribute("#worst th[data-key=human]", "aria-sort") == "descending"
    opened.keyboard.press("Enter")  # the heading keeps the focus
    assert [float(value) for value in column(3)] == sorted(human)
    opened.select_option("#worst-label", "sbert")
    assert opened.inner_text("#worst th[data-key=relevance]") == "sbert"
