"""The HTML of a page: one file with its data, styles and scripts inside."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from relabel.core.tables import Table
from relabel.page.captions import Nearest, PageCaptions


@dataclass(frozen=True)
class PageLabel:
    """A label as the page names it.

    `description`: its source and model.
    `bounds`: (float, float); least and largest relevance.
    `baseline`: whether it reads image ids alone.
    """

    name: str
    description: str
    bounds: tuple[float, float]
    baseline: bool = False

    @property
    def decimals(self) -> int:
        """Decimals of its scores on the page."""
        return 3 if self.bounds[1] - self.bounds[0] <= 2 else 2


@dataclass(frozen=True, eq=False)
class Page:
    """The content of a page.

    `facts`: short facts below the title.
    `nearest`: by label, without the labels that found none.
    `notes`: sentences by section: "judged", "distribution", "search".
    `charts`: JSON-able data of the charts: "headline", "judged" and "distributions".
    """

    dataset: str
    split: str
    facts: tuple[str, ...]
    labels: tuple[PageLabel, ...]
    tables: tuple[Table, ...]
    captions: PageCaptions
    nearest: dict[str, Nearest]
    notes: dict[str, tuple[str, ...]]
    charts: dict[str, Any]


def render_page(page: Page) -> str:
    """Return the HTML of a page. Equal content gives equal text."""
    from plotly.offline import get_plotlyjs

    data = {
        "labels": [
            {"name": one.name, "description": one.description, "decimals": one.decimals, "baseline": one.baseline}
            for one in page.labels
        ],
        "captions": [" ".join(page.captions.corpus.texts[row].split()) for row in page.captions.rows],
        "ids": [page.captions.corpus.caption_ids[row] for row in page.captions.rows],
        "starts": page.captions.starts.tolist(),
        **page.charts,
    }
    blobs = {"plotly": get_plotlyjs().encode(), "data": json.dumps(data, allow_nan=False).encode()}
    searched: list[dict[str, Any]] = []
    decimals = {one.name: one.decimals for one in page.labels}
    for label, nearest in page.nearest.items():
        number, k = len(searched), nearest.positions.shape[1]
        blobs |= _neighbour_blobs(number, nearest, len(page.captions), decimals[label])
        searched.append({"label": label, "k": k, "reranked": nearest.reranked})
    title = f"{page.dataset}, {page.split}"
    values = {
        "title": html.escape(f"{title}: report of relabel"),
        "heading": html.escape(title),
        "facts": _items(page.facts),
        "style": _asset("page.css"),
        "tables": "\n".join(_table(table, opened=i == 0) for i, table in enumerate(page.tables)),
        "has_tables": "" if page.tables else "hidden",
        "has_judged": "" if page.charts.get("judged") else "hidden",
        **{f"{section}_notes": _items(page.notes.get(section, ())) for section in ("judged", "distribution", "search")},
        "distribution_table": _distribution_table(page.charts.get("distributions", {}), decimals),
        "blobs": "\n".join(_blob(name, body) for name, body in blobs.items()),
        "searched": _json(searched),
        "script": _asset("page.js"),
    }
    # One pass, so that braces inside a text are never taken for a placeholder.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def deflate(body: bytes) -> str:
    """Return bytes compressed (zlib) and in base64, which a browser's `DecompressionStream("deflate")` reads."""
    return base64.b64encode(zlib.compress(body, 9)).decode()


def _neighbour_blobs(number: int, nearest: Nearest, count: int, decimals: int) -> dict[str, bytes]:
    """Return the arrays of neighbours: numbers of captions, and rounded scores as differences from rank to rank."""
    # The number `count` stands for no caption.
    numbers = nearest.positions.astype("<u2" if count < 1 << 16 else "<u4")
    scores = np.round(nearest.scores.astype(np.float64) * 10**decimals).astype(np.int32)
    steps = np.diff(scores, axis=1, prepend=0).astype("<i2")
    # Rank by rank, low bytes before high bytes: columns of similar bytes compress well.
    planes = np.ascontiguousarray(steps.T).view(np.uint8).reshape(-1, 2).T
    return {f"numbers-{number}": numbers.tobytes(), f"scores-{number}": planes.tobytes()}


def _blob(name: str, body: bytes) -> str:
    return f'<script type="application/octet-stream" id="blob-{name}">{deflate(body)}</script>'


def _json(value: Any) -> str:
    # `<` could end the script element.
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return resources.files("relabel.page").joinpath("assets", name).read_text(encoding="utf-8")


def _items(texts: Sequence[str]) -> str:
    return "".join(f"<li>{html.escape(text)}</li>" for text in texts)


def _table(table: Table, opened: bool) -> str:
    """Return a table in a block that can be folded."""
    body = _grid(table.title, table.header, table.rows)
    notes = f'<ul class="notes">{_items(table.notes)}</ul>' if table.notes else ""
    state = " open" if opened else ""
    return f"<details{state}><summary>{html.escape(table.title)}</summary>{body}{notes}</details>"


def _grid(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in header)
    lines = []
    for first, *cells in rows:
        row = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{html.escape(first)}</th>{row}</tr>')
    name = html.escape(title, quote=True)
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _distribution_table(distributions: Mapping[str, Any], decimals: Mapping[str, int]) -> str:
    if not distributions:
        return ""
    header = ("label", "median: one image", "neighbours", "random", "neighbours above the one-image median")
    rows = []
    for label, one in distributions.items():
        medians = [one["medians"].get(kind) for kind in ("same_image", "neighbours", "random")]
        cells = ["" if value is None else f"{value:.{decimals[label]}f}" for value in medians]
        rows.append((label, *cells, "" if one["close"] is None else f"{one['close']:.0%}"))
    return _grid("Relevance by kind of pair", header, rows)
