"""Datasets and labels in Python: read captions, encode, open, export, build everything, and report.

Every function takes the folder of a dataset (``labels/coco``), reads the parameters of its labels from a parameter file
and calls `relabel.stages`. Use `relabel.stages` directly for more control.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack

from relabel import stages
from relabel.api.labels import Label
from relabel.config import load_config, params_file
from relabel.core.errors import RelabelError, UsageError, choices, name_parameters, naming_extras
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.params import IngestParams, captions_at
from relabel.corpus.splits import named_split
from relabel.export.params import block_of
from relabel.stages import Session
from relabel.stages.encode import encoded_split, named_warnings
from relabel.stages.run import RunResult
from relabel.stages.run import report as stages_report
from relabel.stages.run import run as stages_run
from relabel.store.files import write_atomic
from relabel.store.manifest import MANIFEST

_TABLE = "captions.parquet"
"""File in the folder of a dataset that holds captions given in memory."""

_EXPORTS: dict[str, Callable[..., stages.Job]] = {
    "lookup": stages.lookup_export,
    "neighbours": stages.neighbours_export,
    "batches": stages.batches_export,
    "wds": stages.wds_export,
}
"""Kinds of export that relabel itself reads. All others are formats of other tools."""


class Options(TypedDict, total=False):
    """Options of every function, as `load` describes them."""

    params: str | Path | None
    settings: Mapping[str, Any] | None
    runtime: Runtime | None


@naming_extras()
def ingest(folder: str | Path, captions: Any, *, runtime: Runtime | None = None, **parameters: Any) -> Corpus:
    r"""Read your own captions into a dataset.

    Parameters
    ----------
    folder : str or Path
        Folder of the dataset to make, such as ``labels/mine``.
    captions : str, Path, table, mapping, list of records or of pairs, or pair of lists
        File, folder, or URL of captions; or a pandas or Arrow table, a mapping of columns to lists, or a list of
        dictionaries, with an image and a text in each row; a list of pairs of an image id and a text; or a tuple of a
        list of image ids and a list of texts. They are written to ``captions.parquet`` in `folder`. Captions that are
        equal to those in the folder are not read again.
    runtime : Runtime, optional
    **parameters
        Parameters of `ingest` in the parameter file: `format`, `image_id_column`, `in_split`, ... With `limit=500`,
        the first 500 images of each split become a dataset with its own name: ``labels/mine-first-500``.

    Returns
    -------
    Corpus
        The captions, by image. `ids` has the caption ids of each row of a table.

    Raises
    ------
    UsageError
        If a parameter is wrong, `captions` is not a table, or the folder already holds other captions or your own
        ``captions.parquet``.
    CheckError
        If the captions do not have the format or fail a check. The message names the file and the line.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("captions.csv").write_text("caption_id,image_id,split,text\n1,a,test,a dog\n2,a,test,a brown dog\n")
    >>> import relabel
    >>> corpus = relabel.ingest("labels/mine", "captions.csv", format="csv")
    >>> corpus.caption_ids
    ['mine:1', 'mine:2']
    """
    if named := [name for name in ("path", "url", "dataset") if name in parameters]:
        hint = "`captions` is the file, folder or URL, and the last part of `folder` names the dataset."
        raise UsageError(f"no parameter {named[0]!r} here", where="relabel.ingest", hint=hint)
    path = captions if isinstance(captions, str | Path) else _write_table(Path(folder), captions)
    values = {f"ingest.{name}": value for name, value in parameters.items()}
    session = open_session(folder, None, captions_at(str(path)) | values, runtime)
    try:
        stages.ingestion(session).run()
    except RelabelError as error:
        if path is not captions:
            # The caller gave a table, and knows nothing of the file that holds it.
            for name in ("problem", "where", "hint"):
                setattr(error, name, (getattr(error, name) or "").replace(str(path), "captions") or None)
        raise
    return stages.open_corpus(session)


@naming_extras()
def encode(folder: str | Path, label: str, split: str | None = None, **options: Unpack[Options]) -> Label:
    """Encode the captions of a split with a label, and open it. Finished work is not repeated.

    The captions of a published dataset (``labels/coco``) are fetched and ingested automatically. Ingest your own
    captions first: see `ingest`.

    Parameters
    ----------
    folder, label, params, settings, runtime
        As for `load`.
    split : {"train", "val", "test", "all"}, optional
        Defaults to the judged split of a benchmark, and to all captions of other data. Common synonyms are accepted
        everywhere: "validation", "valid" and "dev" mean val.

    Raises
    ------
    MissingError
        If captions, Java, a model or word vectors are missing. The message names the command that gets them.
    UsageError
        If the label or split does not exist.

    Examples
    --------
    >>> labels = relabel.encode("labels/mine", "sbert")  # doctest: +SKIP
    """
    session = open_session(folder, **options)
    if not session.folder("corpus", MANIFEST).exists():
        stages.fetch_and_ingest(session)
    parts = stages.label_splits(session, named_split(split))
    chosen = parts[0] if len(parts) == 1 else "all"
    stages.build_encoding(session, label, chosen)
    return _open(session, label, chosen)


@naming_extras()
def label(
    captions: Any,
    source: str = "sbert",
    *,
    split: str = "all",
    out: str | Path | None = None,
    reading: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
    **parameters: Any,
) -> Label:
    """Label your own captions in one call, without a project folder.

    Parameters
    ----------
    captions : str, Path, table, mapping, list of records or of pairs, or pair of lists
        Captions in any form that `ingest` accepts.
    source : str, default="sbert"
        Name of a source, or of a label in the parameter file.
    split : {"train", "val", "test", "all"}, default="all"
        Split whose captions are labelled.
    out : str or Path, optional
        Folder of a dataset, such as ``labels/mine``, that keeps the label for `load` and `export_label`. By default the
        files are in a temporary folder that is deleted with the label.
    reading : mapping, optional
        Parameters of `ingest`, such as ``{"text_column": "title"}``.
    runtime : Runtime, optional
    **parameters
        Parameters of the source: `model` of sbert, `vectors` of cbow, `tokenizer` of cider, `pooling`, ... Those of
        `ingest` may be given here as well: ``text_column="title"``. With `limit=500`, only the first 500 images of each
        split are labelled, and `out` gets the suffix ``-first-500``.

    Returns
    -------
    Label
        Label of the captions of the split. `ids` follows the order of the rows of `captions`; `caption_ids` does not.

    Raises
    ------
    UsageError
        If a parameter is wrong, or `out` holds other captions.
    CheckError
        If the captions fail a check.
    MissingError
        If Java, a model or word vectors are missing. The message names the command that gets them.

    Examples
    --------
    >>> import relabel
    >>> columns = {"image_id": ["a", "a", "b"], "text": ["a dog runs", "a brown dog", "two cats sit"]}
    >>> labels = relabel.label(columns, "cider", tokenizer="lower_split")
    >>> labels.block(images=["captions:a", "captions:b"], captions=labels.caption_ids).shape
    (2, 3)
    """
    # Parameters of captions may be passed together with those of the source; their names do not overlap.
    of_captions = {name: parameters.pop(name) for name in [*parameters] if name in IngestParams.model_fields}
    settings = {f"sources.{source}.{name}": value for name, value in parameters.items()}
    kept = TemporaryDirectory(prefix="relabel-", ignore_cleanup_errors=True) if out is None else None
    folder = Path(out or Path(kept.name, "captions"))  # type: ignore[union-attr]
    of_captions |= reading or {}
    known = type(open_session(folder).config.params(source)).model_fields
    if unknown := [name for name in parameters if name not in known]:
        hint = choices(unknown[0], ["split", "out", "reading", *known, *IngestParams.model_fields])
        raise UsageError(f"no parameter {unknown[0]!r}", where="relabel.label", hint=hint)
    ingest(folder, captions, runtime=runtime, **of_captions)
    settings["ingest.limit"] = of_captions.get("limit")
    opened = encode(folder, source, split, settings=settings, runtime=runtime)
    return replace(opened, _folder=kept)


@naming_extras()
def load(folder: str | Path, label: str, split: str | None = None, **options: Unpack[Options]) -> Label:
    """Open a label that `relabel run`, `relabel encode` or `encode` has built.

    Parameters
    ----------
    folder : str or Path
        Folder of the dataset, such as ``labels/coco``.
    label : str
        Name of the label in the parameter file, or of a source.
    split : {"train", "val", "test", "all"}, optional
        Defaults to the only split for which the label is built, or to "all" if that is one of several.
    params : str or Path, optional
        Parameter file. Defaults to ``params.yaml`` in the working folder or, if it does not exist, next to the folder
        of labels. Without such a file, all parameters have their defaults.
    settings : mapping, optional
        Single parameters by dotted name, such as ``{"sources.cbow.vectors": "glove"}``.
    runtime : Runtime, optional
        Folder of models, device, threads and memory.

    Raises
    ------
    MissingError
        If the dataset or the label has not been built.
    UsageError
        If the label does not exist, or several splits are built and `split` is not given.
    CheckError
        If the label was built from other captions or with other parameters, or a file is damaged.

    Examples
    --------
    >>> labels = relabel.load("labels/coco", "sbert", split="test")  # doctest: +SKIP
    >>> labels.nearest("coco:770337", k=1)[0].caption_id  # doctest: +SKIP
    'coco:403176'
    """
    session = open_session(folder, **options)
    return _open(session, label, named_split(split) or encoded_split(session, label))


@naming_extras()
def export_label(
    folder: str | Path,
    kind: str,
    label: str,
    split: str | None = None,
    *,
    params: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
    **parameters: Any,
) -> Path:
    """Export a label to files for other programs, like `relabel export KIND`. Finished work is not repeated.

    Parameters
    ----------
    folder, label, split, params, settings, runtime
        As for `load`.
    kind : str
        "lookup", "neighbours", "batches", "wds", or a format of another tool: "hf", ... (`relabel export --help`).
    **parameters
        Parameters of `export.KIND` in the parameter file.

    Returns
    -------
    Path
        Folder of the files.

    Raises
    ------
    UsageError
        If the format, label or parameter does not exist, or the format cannot hold the label.
    MissingError, CheckError
        As for `load`.

    Examples
    --------
    >>> relabel.export_label("labels/coco", "hf", "sbert", split="test").as_posix()  # doctest: +SKIP
    'labels/coco/exports/test/hf/sbert'
    """
    overrides = {f"export.{block_of(kind)}.{name}": value for name, value in parameters.items()}
    session = open_session(folder, params, {**(settings or {}), **overrides}, runtime)
    chosen = named_split(split) or encoded_split(session, label)
    own = _EXPORTS.get(kind)
    job = stages.format_export(session, kind, label, chosen) if own is None else own(session, label, chosen)
    job.run()
    return job.out


@naming_extras()
def run(
    folder: str | Path = "labels/coco",
    split: Any = None,
    labels: Sequence[str] = (),
    limit: int | None = None,
    **options: Unpack[Options],
) -> RunResult:
    """Build everything for one split of a dataset, as `relabel run` does. Finished work is not repeated.

    Parameters
    ----------
    folder, params, settings, runtime
        As for `load`.
    split : {"train", "val", "test", "all"}, optional
        Defaults to the judged split of a benchmark, and to each split of other data.
    labels : sequence of str
        Labels to build. Defaults to the labels of the parameter file.
    limit : int, optional
        Build only the first images of each split, for a trial. They form a dataset with its own name, such as
        ``labels/coco-first-500``.

    Returns
    -------
    RunResult
        `report` holds the tables, `problems` the labels that could not be built, `warnings` the warnings of the
        artefacts, and `paths` the written folders.

    Raises
    ------
    RelabelError
        If the captions are not available, or no label can be built.

    Examples
    --------
    >>> result = relabel.run("labels/coco", labels=["cider", "sbert"])  # doctest: +SKIP
    """
    options["settings"] = {**(options.get("settings") or {}), "ingest.limit": limit}
    return stages_run(open_session(folder, **options), named_split(split), labels)


@naming_extras()
def report(
    folder: str | Path = "labels/coco",
    split: Any = None,
    labels: Sequence[str] = (),
    images: str | Path | None = None,
    **options: Unpack[Options],
) -> Path:
    """Write one HTML page about the labels of a split, as `relabel report` does.

    Parameters
    ----------
    folder, split, labels, params, settings, runtime
        As for `run`. Labels that do not exist yet are built.
    images : str or Path, optional
        Folder of images with files named like their ids, or a URL: ``"https://example.org/{image_id}.jpg"``. The page
        links to the images and does not contain them.

    Returns
    -------
    Path
        The file ``page/SPLIT/report.html`` in the folder of the dataset; with several splits, that of the first. It
        opens in a browser without network access.

    Raises
    ------
    RelabelError
        If a label or an evaluation set of the page is not available.

    Examples
    --------
    >>> relabel.report("labels/coco", split="test")  # doctest: +SKIP
    PosixPath('labels/coco/page/test/report.html')
    """
    place = None if images is None else str(images)
    result = stages_report(open_session(folder, **options), named_split(split), labels, place)
    if result.problems:
        raise result.problems[0][1]
    return result.pages[0]


def open_session(
    folder: str | Path,
    params: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
) -> Session:
    """Return the session of a dataset's folder, ``LABELS/DATASET``."""
    path = Path(folder)
    file = params_file(path.parent) if params is None else Path(params)
    config = load_config(file, [], {**(settings or {}), "ingest.dataset": path.name})
    return Session(config, runtime or Runtime(), path.parent)


def _write_table(folder: Path, captions: Any) -> Path:
    """Write captions in memory to a file next to their corpus, to give the corpus a file as its source."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        columns = _columns(captions)
        if isinstance(columns, Mapping):
            # NaN among texts is a missing text, as in pandas.
            columns = {str(name): pa.array(list(values), from_pandas=True) for name, values in columns.items()}
        table = pa.table(columns)
    except (TypeError, ValueError) as error:  # ArrowInvalid is a ValueError
        hint = (
            "Pass a path, a pandas or Arrow table, a mapping of columns to lists of one length, or a list of records."
        )
        if type(captions).__module__.startswith("datasets"):
            hint = "Pass the folder that `save_to_disk` writes, or `to_pandas()` of one split."
        raise UsageError(f"captions of type {type(captions).__name__} are not a table: {error}", hint=hint) from error
    path, origin, metadata = folder / _TABLE, {b"relabel": b"captions in memory"}, None
    with contextlib.suppress(OSError, pa.ArrowException):
        metadata = parquet.read_schema(path).metadata
    if path.exists() and metadata != origin:
        hint = "Pass its path instead of the table, or move it."
        raise UsageError("the table would replace your own file", where=str(path), hint=hint)
    # Without pandas' metadata, equal tables of any type are one file.
    table = table.replace_schema_metadata(origin)
    write_atomic(path, lambda temporary: parquet.write_table(table, temporary))
    return path


def _columns(captions: Any) -> Any:
    """Return a tuple of image ids and texts, a list of records, or a list of pairs as columns; others unchanged."""
    if isinstance(captions, tuple):
        return dict(zip(("image_id", "text"), captions, strict=True))
    if not isinstance(captions, list):
        return captions
    records = []
    for row, one in enumerate(captions):
        pair = isinstance(one, tuple | list) and len(one) == 2 and all(isinstance(value, str | int) for value in one)
        if not isinstance(one, dict) and not pair:
            hint = "Give dictionaries, or pairs of an image id and a text; two lists belong into a tuple: (ids, texts)."
            raise UsageError(f"a record of type {type(one).__name__}", where=f"captions: row {row}", hint=hint)
        records.append(one if isinstance(one, dict) else dict(zip(("image_id", "text"), one, strict=True)))
    if len(records) == 2 and all(isinstance(one, list) for one in captions):
        hint = "Give tuples: [(image, text), ...] are pairs, and ([image, ...], [text, ...]) are columns."
        raise UsageError("two lists of two may be pairs or columns", where="captions", hint=hint)
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _open(session: Session, label: str, split: str) -> Label:
    relevance = stages.open_label(session, label, split)
    # A caller that gave a table does not know the file that holds it.
    table = str(session.folder(_TABLE))
    named = [
        (name, name_parameters(text.replace(table, "captions")))
        for name, text in named_warnings(session, [label], split)
    ]
    for name, text in named:
        _warn_once(f"{name}: {text}")
    return Label(session, label, split, relevance, tuple(dict.fromkeys(text for _, text in named)))


@cache
def _warn_once(text: str) -> None:
    """Issue a warning once per process, at the line of the caller that is outside relabel."""
    # `naming_extras` is a decorator of contextlib.
    inside, files = (str(Path(__file__).parents[1]), contextlib.__file__), (f.filename for f in inspect.stack(0))
    level = next((depth for depth, file in enumerate(files, 1) if not file.startswith(inside)), 1)
    warnings.warn(text, stacklevel=level)
