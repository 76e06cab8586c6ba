"""The HTML page of a report, built from encodings, neighbours and judgements."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from relabel import stages
from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.core.types import Scores
from relabel.datasets.cxc import TASKS
from relabel.datasets.judged import set_names
from relabel.judge.cxc_report import ALL, PairScores, with_baseline
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
from relabel.stages.correlate import EvaluationResult, is_complete
from relabel.stages.judged_sets import JudgingRequest, judge_sets, open_sets
from relabel.stages.project import Project
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel.store.versions import version_of
from relabel.store.workdir import Work

FILE = "report.html"
_CXC = {ALL: "all", "c2i_intrasim": "two_images"}
"""Subset of CxC's pairs of a caption and an image to its name on the page."""


def add_page(
    project: Project, split: str, labels: Sequence[str], names: Sequence[str], result: EvaluationResult
) -> None:
    """Write the page of a result, and add its path and problems to the result.

    `labels`: labels of the request; all of the parameter file if empty. `names`: labels that were to be built. Those
    among the problems of the result are left out of the page.
    """
    failed = {label for label, _ in result.problems}
    names = [name for name in names if name not in failed]
    if not names:
        return
    try:
        path, problems = write_page(project, split, labels, names, result.report)
    except RelabelError as error:
        # The page is the last part of a run: its failure must not hide the results before it.
        result.problems.append(("report", error))
        return
    result.paths["report"] = path
    result.problems += problems


def write_page(
    project: Project, split: str, labels: Sequence[str], names: Sequence[str], report: Report
) -> tuple[Path, list[tuple[str, RelabelError]]]:
    """Write the page of a split unless it is up to date.

    `labels`: labels of the request; all of the parameter file if empty. `names`: labels of the page, which are encoded
    and, where `report` has figures of CxC, judged. `report`: tables and records of the labels. Tables of judged sets of
    texts are added if such sets have been judged. Returns `path`: the file ``page/SPLIT/report.html``; a trial has a
    folder beside it; `problems`, list of (str, RelabelError): judged sets that could not be judged again.
    """
    sets, problems = _judged_sets(project, names)
    report += sets
    # Datasets without human judgements have a page without charts of judged pairs.
    on_cxc = any(record.get("task") in TASKS for record in report.records)
    semantic, inputs = _page_spec(project, split, names, on_cxc)
    semantic["report"] = hashlib.sha256((report.render("md") + report.render("csv")).encode()).hexdigest()
    # A table of neighbours decides if a slow label takes part, and its scores are those of the encoding.
    tables = {name: table for name in names if (table := _neighbour_table(project, name, split)) is not None}
    semantic["tables"] = sorted(name for name in tables if not project.config.source(name).spec.fast)
    folder = page_folder(project, split, labels)
    encodings = {name: stages.encode(project, name, split).open() for name in names}
    judged = {name: stages.judge(project, name).open() for name in names} if on_cxc else {}

    def fill(work: Work) -> None:
        scores = [PairScores.open(project.layout.judgement(split, n), m.facts) for n, m in judged.items()]
        page = _Builder(project, split, encodings, tables, work).page(scores, report)
        text = render_page(page)
        work.file(FILE, lambda path: path.write_bytes(text.encode()))
        work.excluded |= set(work.names()) - {FILE}
        work.facts |= {"split": split, "labels": list(names)}

    recipe = Recipe("page", folder.name, lambda: semantic, inputs, fill)
    manifest, built = build(folder, recipe, project.runtime.progress)
    project.runtime.progress.note(stages.status_line(built, manifest, folder))
    return folder / FILE, problems


def page_folder(project: Project, split: str, labels: Sequence[str]) -> Path:
    """Return the folder of the page of a request; `labels` is empty for all labels of the parameter file."""
    return project.layout.page(
        split if is_complete(project, labels) else f"{split}-{'+'.join(labels)[:80] or 'options'}"
    )


def page_is_current(project: Project, split: str, labels: Sequence[str], names: Sequence[str], on_cxc: bool) -> bool:
    """Return whether the page of a request shows the current encodings and judgements, under the current parameters.

    The tables of the page are not computed for this: they follow from the judgements and the parameters. Sets of texts
    that were judged since are not noticed.

    `project`, `split`, `labels`, `names`: as in `write_page`. `on_cxc`: whether the page shows judged pairs.
    """
    folder = page_folder(project, split, labels)
    try:
        semantic, inputs = _page_spec(project, split, names, on_cxc)
        previous = read_manifest(folder, "page")
    except (MissingError, CheckError):
        return False
    return previous.inputs == inputs and semantic.items() <= previous.semantic.items()


def _page_spec(
    project: Project, split: str, names: Sequence[str], on_cxc: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the parameters and inputs of a page that are known before its tables."""
    semantic = {
        "version": version_of("page"),
        "plotly": metadata.version("plotly"),
        "sizes": [CAPTIONS, NEAREST, RERANKED, PAIRS, POINTS, WORST],
        "split": split,
        "labels": list(names),
        "judge": project.config.judge.model_dump(mode="json"),
        "sources": {name: project.config.params(name).model_dump(mode="json") for name in names},
    }
    inputs = {"corpus": project.corpus.digest}
    inputs |= {f"encoding {name}": stages.encode(project, name, split).identity() for name in names}
    if on_cxc:
        inputs |= {f"judgement {name}": stages.judge(project, name).identity() for name in names}
    return semantic, inputs


def _judged_sets(project: Project, names: Sequence[str]) -> tuple[Report, list[tuple[str, RelabelError]]]:
    """Return the tables of the sets of texts that have been judged for this dataset."""
    judged = [name for name in set_names() if project.layout.judged_set(name).exists()]
    if not judged or not names:
        return Report((), ()), []
    results = judge_sets(project, JudgingRequest(names), open_sets(project, judged, set_names()))
    return results.report, results.problems


def _neighbour_table(project: Project, label: str, split: str) -> Path | None:
    """Return the folder of a label's exact neighbours of the split's captions, if it is up to date."""
    folder = project.layout.neighbours(split, "captions", label)
    if not (folder / MANIFEST).exists():
        return None
    try:
        manifest = stages.neighbours(project, label, split, "captions", split).open()
    except (MissingError, CheckError):
        return None
    return folder if manifest.semantic["index"] is None and int(manifest.facts["k"]) >= NEAREST else None


class _Builder:
    """The parts of a page, which share the captions and the opened labels."""

    def __init__(
        self,
        project: Project,
        split: str,
        encodings: dict[str, Manifest],
        tables: dict[str, Path],
        work: Work,
    ) -> None:
        self.project, self.split, self.encodings, self.tables, self.work = project, split, encodings, tables, work
        corpus = project.corpus
        self.rows = corpus.rows(project.splits(split))
        self.captions = choose_captions(corpus, self.rows)
        self.opened = {name: stages.open_label(project, name, split) for name in encodings}
        self.notes: dict[str, list[str]] = {"judged": [], "distribution": [], "search": []}

    def page(self, scores: Sequence[PairScores], report: Report) -> Page:
        """Return the content of the page."""
        judged = with_baseline(scores)
        nearest = self._nearest()
        charts = {
            "headline": _headline(report),
            "judged": judged_data(judged, self.captions) if judged else {},
            "distributions": self._distributions(nearest),
        }
        labels = [self._label(name) for name in self.opened]
        # The baseline is in every report of judged pairs, even if it is no label of the request.
        labels = [
            PageLabel(one.label, "image ids", (0.0, 1.0), baseline=True)
            for one in judged
            if one.label not in self.opened
        ] + labels
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
        source, facts = self.project.config.source(name), self.encodings[name].facts
        uses = facts["vectors"]["name"] if "vectors" in facts else facts.get("model")
        words = [source.spec.name] if source.spec.name not in name else []
        words += [str(uses)] if uses is not None else []
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

        folder = self.tables[name]
        table = read_neighbours(folder, read_manifest(folder, "neighbours"), self.rows, NEAREST, 1)
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
