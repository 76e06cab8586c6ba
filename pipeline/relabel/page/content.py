"""The content of a page, from opened labels, their neighbours and their judgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relabel.core.runtime import Runtime
from relabel.core.types import Scores
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import read_neighbours
from relabel.judge.cxc_figures import PairScores
from relabel.judge.report import Report
from relabel.page.captions import NEAREST, RERANKED, Nearest, PageCaptions, from_rows, rerank, search
from relabel.page.charts import PAIRS, distribution, draw_neighbours, draw_pairs, headline, judged_data
from relabel.page.render import Page, PageLabel
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work


@dataclass(frozen=True, eq=False)
class OpenLabel:
    """A label of the page.

    `uses`: its model or word vectors.
    `table`: its exact neighbours among all captions of the split, at least `NEAREST`, where they have been found.
    `find`: command that finds them.
    """

    source: Source[Any]
    relevance: Relevance
    uses: str | None
    table: ArtefactRef | None
    find: str


def make_page(
    dataset: str,
    split: str,
    captions: PageCaptions,
    labels: Mapping[str, OpenLabel],
    scores: Sequence[PairScores],
    report: Report,
    runtime: Runtime,
    work: Work,
) -> Page:
    """Return the content of the page of some captions.

    `labels`: by name, in the order of the page. `scores`, `report`: their judgements; empty where there are none.
    `work`: folder for the files of searches.
    """
    facts = [f"{len(captions):,} captions", f"{len(captions.images):,} images", f"{len(labels):,} labels"]
    if not captions.complete:
        total = len(captions.chosen_from)
        facts.append(f"a sample of the {total:,} captions of the split (whole images, seed 0)")
    nearest, search_notes = _nearest(labels, captions, runtime, work)
    distributions, distribution_notes = _distributions(labels, captions, nearest)
    return Page(
        dataset,
        split,
        tuple(facts),
        tuple(_describe(name, one) for name, one in labels.items()),
        report.tables,
        captions,
        nearest,
        {"search": search_notes, "distribution": distribution_notes},
        {
            "headline": headline(report.records),
            "judged": judged_data(scores, captions) if scores else {},
            "distributions": distributions,
        },
    )


def _describe(name: str, label: OpenLabel) -> PageLabel:
    """Describe a label by its source, its model, and the parameters that differ from their defaults."""
    spec = label.source.spec
    words = [spec.name] if spec.name not in name else []
    words += [label.uses] if label.uses is not None else []
    changed = label.source.params.model_dump(mode="json", exclude={"source", "model", "vectors"}, exclude_defaults=True)
    words += [f"{key} {value}" for key, value in changed.items() if isinstance(value, str | int | float)]
    decimals = 3 if spec.bounds[1] - spec.bounds[0] <= 2 else 2
    return PageLabel(name, "image ids" if spec.baseline else ", ".join(words), decimals, spec.baseline)


def _nearest(
    labels: Mapping[str, OpenLabel], captions: PageCaptions, runtime: Runtime, work: Work
) -> tuple[dict[str, Nearest], list[str]]:
    """Return the nearest captions of every label that can find them, and notes about the other labels."""
    found: dict[str, Nearest] = {}
    for name, one in labels.items():
        if captions.complete and one.table is not None:
            table = read_neighbours(one.table.folder, one.table.manifest, captions.chosen_from, NEAREST, 1)
            found[name] = from_rows(captions, table.rows, table.scores)
        elif one.source.spec.fast and len(captions) > 1:
            found[name] = search(one.relevance, captions, name, runtime, work.subfolder(f".{name}"))
    fast, notes = list(found.values()), []
    for name, one in labels.items():
        if name in found or one.source.spec.baseline:
            continue
        if one.source.supports("neighbours") is None or not fast:
            notes.append(f"{name} is not searched: its neighbours take long. {one.find} finds them.")
        else:
            found[name] = rerank(one.relevance, captions, fast, name, runtime)
            notes.append(f"{name} scores pair by pair. It orders the first {RERANKED} captions of each other label.")
    # Every label takes its place among the others.
    return {name: found[name] for name in labels if name in found}, notes


def _distributions(
    labels: Mapping[str, OpenLabel], captions: PageCaptions, nearest: Mapping[str, Nearest]
) -> tuple[dict[str, Any], list[str]]:
    """Return the distributions of every label but the baseline, and the notes below them."""
    pairs, result, notes = draw_pairs(captions), dict[str, Any](), list[str]()
    for name, one in labels.items():
        if one.source.spec.baseline:
            notes.append(f"{name} is left out: it is 1 for pairs of one image, else 0.")
            continue
        drawn: dict[str, Scores] = {kind: captions.score(one.relevance, *both) for kind, both in pairs.items()}
        if name in nearest:
            drawn["neighbours"] = draw_neighbours(captions, nearest[name])
        result[name] = distribution(drawn)
    notes.append(
        f"{PAIRS:,} pairs of each kind, drawn with seed 0. Neighbours are among the {NEAREST} nearest captions. "
        "The last bin holds all larger values. Random pairs may exceed the vertical axis."
    )
    return result, notes
