"""Functions to explore a labelled dataset: nearest captions, false negatives, and the state of the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from relabel import stages
from relabel.api.build import Options, open_session
from relabel.core.errors import naming_extras
from relabel.core.runtime import SILENT
from relabel.core.types import Queries
from relabel.corpus.splits import named_split
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import COLUMNS, with_ids
from relabel.stages.encode import encoded_split
from relabel.stages.false_negatives import FalseNegatives, find_false_negatives
from relabel.stages.verify import Findings
from relabel.stages.verify import verify as read_back

if TYPE_CHECKING:
    import pyarrow


@naming_extras()
def neighbours(
    folder: str | Path,
    label: str,
    split: str | None = None,
    *,
    k: int | None = None,
    queries: Queries = "captions",
    **options: Unpack[Options],
) -> pyarrow.Table:
    """Find the most relevant captions of every caption or image, by ids. Finished work is not repeated.

    Parameters
    ----------
    folder, label, params, settings, runtime
        As for `load`. The label is encoded first: see `encode`.
    split : {"train", "val", "test", "all"}, optional
        Split of the queries and of their neighbours. By default the only split that the label is built for.
    k : int, optional
        Neighbours per caption or image. Defaults to `neighbours.k` of the parameter file, 100.
    queries : {"captions", "images"}, default="captions"

    Returns
    -------
    pyarrow.Table
        One row per query, all in memory; ``to_pandas()`` gives a DataFrame. Columns: `caption_id` (of captions),
        `image_id`, and lists of `neighbours` (caption ids, best first), `neighbour_images`, `scores` (float32) and
        `same_image` (bool).

    Raises
    ------
    UsageError
        If the label does not support neighbours, or several splits are built and `split` is not given.
    MissingError, CheckError
        As for `load`.

    Examples
    --------
    >>> table = relabel.neighbours("labels/coco", "sbert", split="test", k=10)  # doctest: +SKIP
    """
    options["settings"] = {**(options.get("settings") or {}), "neighbours.k": k}
    session = open_session(folder, **options)
    chosen = named_split(split) or encoded_split(session, label)
    job = stages.neighbour_table(session, label, chosen, queries)
    job.run()
    found = ArtefactRef.of(job)
    rows = range(found.groups[0][2].start, found.groups[-1][2].stop)
    return with_ids(found.read(rows, COLUMNS), stages.open_corpus(session), queries)


@naming_extras()
def false_negatives(
    folder: str | Path,
    labels: str | Sequence[str] = (),
    split: str | None = None,
    probability: float | None = None,
    threshold: float | None = None,
    **options: Unpack[Options],
) -> FalseNegatives:
    """Find likely false negatives: captions of other images that people would accept for an image.

    Parameters
    ----------
    folder, params, settings, runtime
        As for `load`.
    labels : str or sequence of str
        Labels to show. The first label selects the pairs, and its neighbours must exist: see `neighbours`. Defaults to
        the labels of `export.labels` that have neighbours.
    split : {"train", "val", "test", "all"}, optional
        Defaults to the judged split of a benchmark, and to the first split of other data.
    probability : float, optional
        Minimum probability that people score a pair 4 or more of 5, by the calibration of the first label. Defaults to
        0.8.
    threshold : float, optional
        Minimum relevance of a pair, within the range of the first label, instead of a probability.

    Returns
    -------
    FalseNegatives
        ``to_pandas()`` has all pairs, best first, with ids, texts and scores; ``summary()`` describes them.

    Raises
    ------
    UsageError
        If the label does not have a calibration, no relevance has the probability, or no pair can reach the threshold.
    MissingError
        If the label does not have neighbours yet. The message names the command that computes them.
    CheckError
        As for `load`.

    Examples
    --------
    >>> pairs = relabel.false_negatives("labels/coco", "sbert", split="test").to_pandas()  # doctest: +SKIP
    """
    names = [labels] if isinstance(labels, str) else labels
    session = open_session(folder, **options)
    return find_false_negatives(session, names, named_split(split), probability, threshold)


@naming_extras()
def verify(*folders: str | Path) -> Findings:
    """Read every artefact and fetched file, and compare it with its manifest.

    Parameters
    ----------
    *folders : str or Path
        Folders of labels, of fetched files, or of one artefact. Defaults to ``labels``.

    Returns
    -------
    Findings
        `problems` lists the files that are damaged, missing, unreadable, or not in a manifest. It is empty if all files
        are unchanged. `artefacts`, `fetched`, `files` and `bytes` are counts of the content that was read.

    Raises
    ------
    MissingError
        If the folder does not exist.

    Examples
    --------
    >>> import relabel
    >>> _ = relabel.ingest("labels/mine", [("a", "a dog runs"), ("b", "two cats")])
    >>> relabel.verify("labels").problems
    []
    """
    return read_back([Path(folder) for folder in folders or ("labels",)], SILENT)
