"""The HTML page of a report, built from encodings, neighbours and judgements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from typing import Any

import numpy as np

from relabel import stages
from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.core.types import Scores
from relabel.datasets.judged import set_names
from relabel.judge.cxc_report import ALL, PairScores
from relabel.judge.report import Report
from relabel.page.captions import CAPTIONS, NEAREST, RERANKED, Nearest, choose_captions, from_rows, rerank, search
from relabel.page.charts import (
    PAIRS,
    POINTS,
    WORST,
    distribution,
    draw_neighbours,
    draw_pairs,
    judged_data,
    score_pairs,
)
from relabel.page.render import Page, PageLabel, render_page
from relabel.sources.relevance import Relevance
from relabel.stages.correlate import Against, EvaluationResult, is_complete
from relabel.stages.job import Job
from relabel.stages.judge import describe, open_scores
from relabel.stages.judged_sets import open_set
from relabel.stages.project import Project
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST
from relabel.store.versions import version_of
from relabel.store.workdir import Work

FILE = "report.html"
_CXC = {ALL: "all", "c2i_intrasim": "two_images"}
"""Subset of CxC's pairs of a caption and an image to its name on the page."""


def page(project: Project, split: str, labels: Sequence[str], names: Sequence[str], against: Sequence[Against]) -> Job:
    """Prepare to write the page of a split.

    `labels`: labels of the request; all of the parameter file if empty. `names`: labels of the page, which are encoded
    and judged on `against`. Tables of judged sets of texts are added if the labels have been judged on such sets. The
    page is ``page/SPLIT/report.html``; that of other labels or parameters than those of the file lies beside it.
    """
    config, layout = project.config, project.layout
    sets = []
    for name in set_names():
        if layout.judged_set(name).exists():
            # Its files may be gone.
            with suppress(RelabelError):
                sets.append(open_set(project, name, names))
    judged = EvaluationResult(project)
    judged.add_encoded(names, against)
    report = judged.report + judged.read_sets(sets)
    neighbours = {name: job for name in names if (job := _neighbours(project, name, split)) is not None}
    jobs = {f"encoding {name}": stages.encode(project, name, split) for name in names}
    jobs |= {f"neighbours {name}": job for name, job in neighbours.items()}
    jobs |= judged.made_of
    semantic = {
        "tables": version_of("report"),
        "plotly": metadata.version("plotly"),
        "sizes": [CAPTIONS, NEAREST, RERANKED, PAIRS, POINTS, WORST],
        "split": split,
        "labels": list(names),
        "judge": config.judge.model_dump(mode="json"),
        "sources": {name: config.params(name).model_dump(mode="json") for name in names},
    }
    inputs: Inputs = {"corpus": project.corpus.digest, **{name: job.identity for name, job in jobs.items()}}

    def fill(work: Work) -> None:
        scores = [open_scores(project, name) for name in names] if "cxc" in against else []
        text = render_page(_Builder(project, split, names, neighbours, work).page(scores, report))
        work.file(FILE, lambda path: path.write_bytes(text.encode()))
        work.excluded |= set(work.names()) - {FILE}
        work.facts |= {"split": split, "labels": list(names)}

    name = page_name(project, split, labels)
    recipe = Recipe("page", name, lambda: semantic, inputs, fill)
    return Job(project, layout.page(name), recipe, project.command("report", split=split))


def page_name(project: Project, split: str, labels: Sequence[str]) -> str:
    """Return the name of the page of a request: `labels` is empty for all labels of the parameter file."""
    return split if is_complete(project, labels) else f"{split}-{'+'.join(labels)[:80] or 'options'}"


def _neighbours(project: Project, label: str, split: str) -> Job | None:
    """Return the job of a label's exact neighbours of the split's captions, if it is up to date."""
    if not (project.layout.neighbours(split, "captions", label) / MANIFEST).exists():
        return None
    try:
        job = stages.neighbours(project, label, split, "captions", split)
        manifest = job.open()
    except (MissingError, CheckError):
        return None
    return job if manifest.semantic["index"] is None and int(manifest.facts["k"]) >= NEAREST else None


class _Builder:
    """The parts of a page, which share the captions and the opened labels."""

    def __init__(
        self,
        project: Project,
        split: str,
        names: Sequence[str],
        tables: dict[str, Job],
        work: Work,
    ) -> None:
        self.project, self.split, self.tables, self.work = project, split, tables, work
        corpus = project.corpus
        self.rows = corpus.rows(project.splits(split))
        self.captions = choose_captions(corpus, self.rows)
        self.opened = {name: stages.open_label(project, name, split) for name in names}
        self.notes: dict[str, list[str]] = {"judged": [], "distribution": [], "search": []}

    def page(self, scores: Sequence[PairScores], report: Report) -> Page:
        """Return the content of the page."""
        nearest = self._nearest()
        charts = {
            "headline": _headline(report),
            "judged": judged_data(scores, self.captions) if scores else {},
            "distributions": self._distributions(nearest),
        }
        labels = [self._label(name) for name in self.opened]
        captions = self.captions
        facts = [f"{len(captions):,} captions", f"{len(captions.images):,} images", f"{len(labels):,} labels"]
        if len(captions) < len(self.rows):
            facts.append(f"a sample of the {len(self.rows):,} captions of the split (whole images, seed 0)")
        for relevance in self.opened.values():
            relevance.close()
        return Page(
            self.project.config.ingest.dataset,
            self.split,
            tuple(facts),
            tuple(labels),
            report.tables,
            captions,
            nearest,
            {section: tuple(notes) for section, notes in self.notes.items()},
            charts,
        )

    def _label(self, name: str) -> PageLabel:
        """Describe a label by its source, its model, and the parameters that differ from their defaults."""
        source, encoding = self.project.config.source(name), stages.encode(self.project, name, self.split).open()
        uses = describe(self.project, name, encoding).uses
        words = [source.spec.name] if source.spec.name not in name else []
        words += [uses] if uses is not None else []
        changed = source.params.model_dump(mode="json", exclude={"source", "model", "vectors"}, exclude_defaults=True)
        words += [f"{key} {value}" for key, value in changed.items() if isinstance(value, str | int | float)]
        if source.spec.baseline:
            words = ["image ids"]
        return PageLabel(name, ", ".join(words), source.spec.bounds, source.spec.baseline)

    def _nearest(self) -> dict[str, Nearest]:
        """Return the nearest captions of every label that can find them, in the order of the labels."""
        neighbours: dict[str, Nearest] = {}
        for name, relevance in self.opened.items():
            if (nearest := self._search(name, relevance)) is not None:
                neighbours[name] = nearest
        fast = list(neighbours.values())
        for name, relevance in self.opened.items():
            source = self.project.config.source(name)
            if name in neighbours or source.spec.baseline:
                continue
            if source.supports("neighbours") is None or not fast:
                todo = self.project.command("neighbours", label=name, within=self.split)
                self.notes["search"].append(f"{name} is not searched: its neighbours take long. {todo} finds them.")
                continue
            neighbours[name] = rerank(relevance, self.captions, fast, name, self.project.runtime)
            self.notes["search"].append(
                f"{name} scores pair by pair. It orders the first {RERANKED} captions of each other label."
            )
        # Every label but the baseline takes its place among the others.
        return {name: neighbours[name] for name in self.opened if name in neighbours}

    def _search(self, name: str, relevance: Relevance) -> Nearest | None:
        """Return the exact nearest captions of a label; None if they would take long to find."""
        if len(self.captions) == len(self.rows) and name in self.tables:
            return self._read_table(name)
        if not self.project.config.source(name).spec.fast or len(self.captions) < 2:
            return None
        return search(relevance, self.captions, name, self.project.runtime, self.work.subfolder(f"nearest-{name}"))

    def _read_table(self, name: str) -> Nearest:
        from relabel.export.neighbours import read_neighbours

        job = self.tables[name]
        table = read_neighbours(job.out, job.open(), self.rows, NEAREST, 1)
        return from_rows(self.captions, table.rows, table.scores)

    def _distributions(self, nearest: dict[str, Nearest]) -> dict[str, Any]:
        pairs, result = draw_pairs(self.captions), {}
        for name, relevance in self.opened.items():
            if self.project.config.source(name).spec.baseline:
                self.notes["distribution"].append(f"{name} is left out: it is 1 for pairs of one image, else 0.")
                continue
            scores: dict[str, Scores] = {}
            for kind in ("same_image", "neighbours", "random"):
                if kind == "neighbours" and name in nearest:
                    scores[kind] = draw_neighbours(self.captions, nearest[name])
                elif kind in pairs:
                    scores[kind] = score_pairs(relevance, self.captions, pairs[kind])
            summary = distribution(scores)
            result[name] = asdict(summary) | {
                "edges": np.round(summary.edges, 4).tolist(),
                "shares": {kind: np.round(values, 5).tolist() for kind, values in summary.shares.items()},
            }
        self.notes["distribution"].append(
            f"{PAIRS:,} pairs of each kind, drawn with seed 0. Neighbours are among the {NEAREST} nearest captions. "
            "The last bin holds all larger values. Random pairs may exceed the vertical axis."
        )
        return result


def _headline(report: Report) -> list[dict[str, Any]]:
    """Return Pearson's r of CxC's pairs of a caption and an image, by label and subset."""
    rows: Iterable[dict[str, Any]] = (
        record for record in report.records if record.get("task") == "sits" and record.get("subset") in _CXC
    )
    return [
        {"label": r["label"], "subset": _CXC[r["subset"]], "r": r["pearson"], "low": r["low"], "high": r["high"]}
        for r in rows
    ]
