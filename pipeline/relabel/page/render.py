"""Content and HTML of the page, from opened labels, their neighbours and their judgements.

The page is one file that includes its data, styles and scripts.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from types import MappingProxyType
from typing import Any

import numpy as np

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.core.tables import Table
from relabel.export.base import ArtefactRef
from relabel.judge.calibration import Reliability
from relabel.judge.cxc_figures import PairScores
from relabel.judge.report import Report
from relabel.page.captions import Nearest, PageCaptions, draw_scores, read_table, rerank, search
from relabel.page.charts import TASKS, ChartPairs, diagram, distribution, headline
from relabel.page.images import Images
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work


@dataclass(frozen=True, eq=False)
class OpenLabel:
    """A label of the page.

    `uses`: model or word vectors of the label.
    `table`: exact neighbours among all captions of the split, if they have been computed.
    """

    source: Source[Any]
    relevance: Relevance
    uses: str | None
    table: ArtefactRef | None


def make_page(
    title: str,
    captions: PageCaptions,
    labels: Mapping[str, OpenLabel],
    scores: Sequence[PairScores],
    report: Report,
    checked: Mapping[str, Reliability],
    false_negatives: Table | None,
    warnings: Sequence[str],
    images: Images | None,
    runtime: Runtime,
    work: Work,
) -> str:
    """Return the HTML of the page. The result is deterministic.

    `labels`: labels by name, in the order of the page. `scores`, `report`: their judgements, or empty.
    `checked`: reliability of their curves.
    `false_negatives`: table of false negatives, if known. `images`: URLs of the images, if available.
    `work`: work folder for searches.
    """
    corpus, total = captions.corpus, len(captions.chosen_from)
    facts = [f"{len(captions):,} of {_count(total, 'caption')}", _count(len(captions.images), "image")]
    compared = [name for name, label in labels.items() if label.source.spec.kind != "baseline"]
    colours = dict.fromkeys(labels, "var(--baseline)")
    colours |= {name: f"var(--label-{number % 8})" for number, name in enumerate(compared)}
    nearest = _nearest({name: labels[name] for name in compared}, captions, runtime, work)
    drawn = {name: draw_scores(labels[name].relevance, captions, nearest.get(name)) for name in compared}
    figures = {name: distribution(samples, colours[name]) for name, samples in drawn.items()}
    judged = [ChartPairs(scores, task, captions) for task in TASKS if scores and all(task in s.tasks for s in scores)]
    pictured = [corpus.image_ids[number] for number in captions.images]
    listed = [image for row in false_negatives.images for image in row if image] if false_negatives else []
    addresses = _addresses(images, [*pictured, *listed])
    data = {
        "images": [addresses[image_id] for image_id in pictured if images],
        "labels": {name: [colours[name], label.uses or label.source.spec.name] for name, label in labels.items()},
        "captions": [" ".join(corpus.texts[row].split()) for row in captions.rows],
        "ids": [corpus.caption_ids[row] for row in captions.rows],
        "starts": captions.starts,
        "headline": {"": headline(report.records, colours)} if judged else {},
        "reliability": {name: diagram(one, colours[name]) for name, one in checked.items()},
        "judged": {pairs.task: pairs.data(colours) for pairs in judged if len(pairs.human)},
        "distributions": {name: figure for name, figure in figures.items() if figure["data"]},
        "searched": {name: result._asdict() for name, result in nearest.items()},
    }
    return render_page(title, facts, report.tables, data, false_negatives, warnings, addresses, images)


def _addresses(images: Images | None, image_ids: Sequence[str]) -> dict[str, str]:
    """Return the URL of each image by id, or "" if it has none. Raises CheckError if no image has a URL."""
    if images is None:
        return {}
    urls = {image_id: images.address(image_id.partition(":")[2]) for image_id in image_ids}
    if not any(urls.values()):
        problem = f"no file matches an image of the page, such as {image_ids[0]}"
        raise CheckError(problem, where="images", hint="Name files like ids: 391895.jpg, or a/b.jpg for a/b.")
    return urls


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _nearest(
    labels: Mapping[str, OpenLabel], captions: PageCaptions, runtime: Runtime, work: Work
) -> dict[str, Nearest]:
    """Return the nearest captions of every label that can find them quickly."""
    results = dict[str, Nearest]()
    if len(captions) == 1:
        return results
    for name, label in labels.items():
        if label.table is not None and (nearest := read_table(label.table, captions)) is not None:
            results[name] = nearest
        elif label.source.spec.fast:
            results[name] = search(label.relevance, captions, name, runtime, work.subfolder(f".{name}"))
    fast = list(results.values())
    for name, label in labels.items():
        if name not in results and fast and label.source.supports("neighbours") is not None:
            results[name] = rerank(label.relevance, captions, fast, name, runtime)
    # In the order of the labels.
    return {name: results[name] for name in labels if name in results}


def render_page(
    title: str,
    facts: Sequence[str],
    tables: Sequence[Table],
    data: Mapping[str, Any],
    false_negatives: Table | None = None,
    warnings: Sequence[str] = (),
    addresses: Mapping[str, str] | None = None,
    images: Images | None = None,
) -> str:
    """Fill the HTML template of the page. `data`: data for the script. `addresses`: URLs of images in tables by id."""
    from plotly.offline import get_plotlyjs

    kinds = {trace["name"] for figure in data["distributions"].values() for trace in figure["data"]}
    server = images.template if images else None

    values = {
        "title": escape(title),
        "facts": _items(facts),
        "warnings": f'<ul class="alert">{_items(warnings)}</ul>' if warnings else "",
        "style": _asset("page.css"),
        "tables": "\n".join(_table(table, opened=i == 0) for i, table in enumerate(tables)),
        "false_negatives": "" if false_negatives is None else _table(false_negatives, True, addresses or {}),
        "has_false_negatives": "hidden" if false_negatives is None else "",
        "has_tables": "" if tables else "hidden",
        "has_judged": "" if data["judged"] else "hidden",
        "has_reliability": "" if data["reliability"] else "hidden",
        "has_distributions": "" if data["distributions"] else "hidden",
        **{f"has_{kind}": "" if kind in kinds else "hidden" for kind in ("same_image", "neighbours", "random")},
        "image_origin": escape(images.origin if images else ""),
        "footer": f"Images are loaded from {escape(server)}." if server else "It works without a server.",
        "plotly": _pack(get_plotlyjs()),
        "data": _pack(json.dumps(data, allow_nan=False, default=np.ndarray.tolist)),
        "script": _asset("page.js"),
    }
    # Replaced in one pass, because texts may contain braces.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def _pack(text: str) -> str:
    # Decoded by `DecompressionStream("deflate")` in the browser. Level 9 takes six times as long for 3% fewer bytes.
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _asset(name: str) -> str:
    return resources.files("relabel.page").joinpath("assets", name).read_text(encoding="utf-8")


def _items(texts: Sequence[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _table(table: Table, opened: bool, addresses: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the HTML of a table in a collapsible block. `addresses`: URLs of images by id."""

    def image(row: int, column: int) -> str:
        address = addresses.get(table.images[row][column], "") if table.images else ""
        return f'<img src="{escape(address)}" alt="" loading="lazy">' if address else ""

    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{image(i, j)}{escape(cell)}</td>" for j, cell in enumerate(cells, 1))
        + "</tr>"
        for i, (name, *cells) in enumerate(table.rows)
    )
    title = escape(table.title)
    # `tabindex`, because a scrollable region must be reachable by keyboard.
    return (
        f"<details{' open' if opened else ''}><summary>{title}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><caption>{title}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<ul class="notes">{_items(table.notes)}</ul></details>'
    )
