"""page: the HTML page of a report, built from encodings, neighbours and judgements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.datasets.evaluation_sets import set_names
from relabel.export.base import ArtefactRef
from relabel.page.captions import choose_captions
from relabel.page.images import Images
from relabel.page.render import OpenLabel, make_page
from relabel.stages.calibrate import check_curves
from relabel.stages.corpus import open_corpus
from relabel.stages.correlate import Against, encoded_sections, texts_section, total_report
from relabel.stages.encode import encoding, named_warnings, open_label
from relabel.stages.export import existing_neighbours
from relabel.stages.false_negatives import find_false_negatives, find_threshold
from relabel.stages.job import Job
from relabel.stages.judged import describe, open_scores
from relabel.stages.session import Session
from relabel.stages.text_sets import open_set
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import version_of
from relabel.store.workdir import Work

FILE = "report.html"
_LISTED = 25  # false negatives


def page(
    session: Session, split: str, names: Sequence[str], against: Sequence[Against], images: str | None = None
) -> Job:
    """Prepare to write the page of a split, ``page/SPLIT/report.html``. An existing page is replaced.

    `names`: labels of the page. They must be encoded, and judged on `against`. If they were judged on evaluation sets
    of texts, their tables are added. `images`: a folder of images, or a URL with `{image_id}`.
    """
    folder, judge = session.folder, session.config.judge
    sets = []
    for name in set_names():
        if folder("judged", name).exists():
            # The files of the set may be missing.
            with suppress(RelabelError):
                sets.append(open_set(session, name, names))
    sections = [*encoded_sections(session, names, against), texts_section(session, sets)]
    report, corpus = total_report(sections), open_corpus(session)
    checked = check_curves(session, names) if "cxc" in against else {}
    neighbours = {name: job for name in names if (job := _neighbours(session, name, split)) is not None}
    jobs = {f"encoding {name}": encoding(session, name, split) for name in names}
    jobs |= {f"neighbours {name}": job for name, job in neighbours.items()}
    for section in sections:
        jobs |= section.inputs
    config: dict[str, Any] = {
        "tables": version_of("report"),
        "split": split,
        "labels": list(names),
        "judge": judge.model_dump(mode="json"),
        # A curve may be the shipped one, so it follows from no input alone.
        "reliability": {name: asdict(found) for name, found in checked.items()},
        "sources": {name: session.config.params(name).model_dump(mode="json") for name in names},
    }
    # Use the same label as `relabel false-negatives`: the first exported one with neighbours.
    listed, limit = next((name for name in session.config.exported if name in neighbours), None), None
    if listed is not None:
        with suppress(RelabelError):
            limit = find_threshold(session, listed)
            config["false_negatives"] = limit
    pictures = None if images is None else Images.at(images, folder("page", split))
    if pictures is not None:
        config["images"] = pictures.config
    inputs: Inputs = {"corpus": corpus.digest, **jobs}

    def fill(work: Work) -> None:
        scores = [open_scores(session, name) for name in names] if "cxc" in against else []
        captions = choose_captions(corpus, corpus.split_rows(split))
        opened = {name: _open(session, name, split, neighbours.get(name)) for name in names}
        title = f"{session.config.ingest.dataset}, {split}"
        pairs = None
        if listed is not None and limit is not None:
            pairs = find_false_negatives(session, [listed], split).table(_LISTED)
        warnings = [f"{name}: {text}" for name, text in named_warnings(session, names, split)]
        text = make_page(
            title, captions, opened, scores, report, checked, pairs, warnings, pictures, session.runtime, work
        )
        work.file(FILE, lambda path: path.write_bytes(text.encode()))
        work.metadata |= {"split": split, "labels": list(names)}

    recipe = Recipe("page", split, lambda: config, inputs, fill)
    return Job(session, folder("page", split), recipe, session.command("report", split=split))


def _neighbours(session: Session, label: str, split: str) -> Job | None:
    """Return the job of a label's exact neighbours of the split's captions, or None if they are not up to date."""
    with suppress(MissingError, CheckError):
        job = existing_neighbours(session, label, split)
        if job is not None and session.config.neighbours.index is None:
            job.open()
            return job
    return None


def _open(session: Session, label: str, split: str, neighbours: Job | None) -> OpenLabel:
    return OpenLabel(
        session.config.source(label),
        open_label(session, label, split),
        describe(session, label, encoding(session, label, split).open()).uses,
        None if neighbours is None else ArtefactRef.of(neighbours),
    )
