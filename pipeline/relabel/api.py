"""The functions of `import relabel`: one Python call per task, by ids and texts.

Every function takes the folder of a dataset (``labels/coco``), reads the parameters of its labels from a parameter file
and calls the stage of the same name in `relabel.stages`, which offers more control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel import stages
from relabel.config import load_config, params_file
from relabel.core.errors import MissingError, UsageError
from relabel.core.hints import command, repeat_options
from relabel.core.runtime import Runtime, default_data
from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.judge.judged_scores import ScoreFunction
from relabel.judge.report import Report
from relabel.sources.relevance import Relevance
from relabel.sources.texts import score_texts
from relabel.stages import Project
from relabel.stages.correlate import ENCODED, Against, EvaluationResult
from relabel.stages.correlate import correlate as stages_correlate
from relabel.stages.nearest import Hit, find_row, nearest, search_labels
from relabel.stages.report import report as stages_report
from relabel.stages.run import run as stages_run
from relabel.store.manifest import MANIFEST

__all__ = ["Label", "correlate", "encode", "export_label", "ingest", "load", "report", "run", "score"]


@dataclass(frozen=True, eq=False, repr=False)
class Label:
    """An opened label: the relevance of the images and captions of one split.

    Made by `load` and `encode`. Relevance is oriented as everywhere in relabel: rows are images, columns are captions.

    Attributes
    ----------
    project : Project
        Parameters and folders of the dataset.
    name : str
        Name of the label.
    split : str
    relevance : Relevance
        The opened encoding, which answers by corpus rows.

    Examples
    --------
    >>> labels = relabel.load("labels/coco", "sbert", split="test")  # doctest: +SKIP
    >>> labels.block(images=["coco:391895", "coco:60623"], captions=["coco:770337"]).shape  # doctest: +SKIP
    (2, 1)
    """

    project: Project
    name: str
    split: str
    relevance: Relevance

    def __repr__(self) -> str:
        rows, dataset = self.relevance.rows, self.project.config.ingest.dataset
        low, high = self.project.config.source(self.name).spec.bounds
        return f"<Label {self.name} of {dataset} ({self.split}): {len(rows):,} captions, relevance {low:g} to {high:g}>"

    @property
    def corpus(self) -> Corpus:
        """All captions of the dataset, with those that this label does not cover."""
        return self.relevance.corpus

    @property
    def caption_ids(self) -> list[str]:
        """Ids of the covered captions, in the order of the corpus."""
        rows = self.relevance.rows
        return self.corpus.caption_ids[rows.start : rows.stop]

    @property
    def image_ids(self) -> list[str]:
        """Ids of the images whose captions are covered, in the order of the corpus."""
        rows, image = self.relevance.rows, self.corpus.image
        return self.corpus.image_ids[int(image[rows.start]) : int(image[rows.stop - 1]) + 1]

    def block(
        self, images: Sequence[str], captions: Sequence[str], pooling: Pooling | None = None
    ) -> NDArray[np.float64]:
        """Return the exact relevance of every given caption for every given image.

        Parameters
        ----------
        images : sequence of str
            M image ids. The first five captions of each image are its references.
        captions : sequence of str
            N caption ids.
        pooling : {"paired", "max", "mean", "refs"}, optional
            Reduction over the references of an image. Defaults to the label's.

        Returns
        -------
        ndarray of shape (M, N), float64
            NaN where a caption could not be encoded.

        Raises
        ------
        UsageError
            If an id is not in the corpus or not in this split, or the pooling does not apply to the source.
        """
        self._check_pooling(pooling)
        return self.relevance.block(self._references(images), self._rows(captions), pooling)

    def pairs(
        self, images: Sequence[str], captions: Sequence[str], pooling: Pooling | None = None
    ) -> NDArray[np.float64]:
        """Return the relevance of P pairs of an image and a caption.

        Parameters
        ----------
        images, captions : sequence of str
            P image ids and P caption ids.
        pooling : {"paired", "max", "mean", "refs"}, optional

        Returns
        -------
        ndarray of shape (P,), float64
            Equal to the entries of `block`.

        Raises
        ------
        UsageError
            As `block`; and if the two sequences differ in length.
        """
        if len(images) != len(captions):
            raise UsageError(
                f"pairs need as many images as captions, found {len(images)} and {len(captions)}",
                todo="Use block() to score all images against all captions.",
            )
        self._check_pooling(pooling)
        return self.relevance.pairs(self._references(images), self._rows(captions), pooling)

    def nearest(self, caption_id: str | None = None, *, text: str | None = None, k: int = 10) -> list[Hit]:
        """Return the k captions that are most relevant to a caption or a new text.

        Parameters
        ----------
        caption_id : str, optional
            Id of a covered caption. The caption itself is not among the results.
        text : str, optional
            A new text. Give exactly one of the two.
        k : int, default=10

        Returns
        -------
        list of Hit
            Ordered by descending score, then by corpus row. Each has `caption_id`, `image_id`, `text`, `score` and
            `same_image`.

        Raises
        ------
        UsageError
            If the id is unknown, both or neither is given, or the source cannot score a new text.
        """
        if (caption_id is None) == (text is None):
            raise UsageError("nearest() takes either a caption id or a text", todo='nearest(text="a dog")')
        if k < 1:
            raise UsageError(f"k must be at least 1, found {k}")
        source = self.project.config.source(self.name)
        if text is not None or source.is_pairwise():  # a new text may be refused; slow sources need a gate
            return search_labels(self.project, text, caption_id, [self.name], k, self.split)[1][self.name]
        return nearest(self.relevance, find_row(self.corpus, self.relevance.rows, str(caption_id)), k)

    def _check_pooling(self, pooling: Pooling | None) -> None:
        if pooling is not None:
            self.project.config.source(self.name).check_pooling(pooling)

    def _rows(self, caption_ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the corpus rows of covered captions, (N,) int32."""
        _check_sequence("captions", caption_ids)
        rows = self.relevance.rows
        return np.array([find_row(self.corpus, rows, caption_id) for caption_id in caption_ids], np.int32)

    def _references(self, image_ids: Sequence[str]) -> References:
        """Return the reference sets of images whose captions are covered."""
        _check_sequence("images", image_ids)
        corpus, rows = self.corpus, self.relevance.rows
        numbers = []
        for image_id in image_ids:
            number = corpus.image_of.get(image_id)
            if number is None:
                todo = f"Ids look like {corpus.image_ids[0]}."
                raise UsageError("no such image in the corpus", where=image_id, todo=todo)
            if corpus.indptr[number] not in rows:
                split = corpus.table["split"][int(corpus.indptr[number])].as_py()
                todo = f"Load the label for split {split}."
                problem = f"the image is in split {split}, which this label does not cover"
                raise UsageError(problem, where=image_id, todo=todo)
            numbers.append(number)
        return corpus.references(numbers)


def score(
    references: str | Sequence[str],
    captions: str | Sequence[str],
    source: str = "sbert",
    *,
    documents: Sequence[Sequence[str]] | None = None,
    runtime: Runtime | None = None,
    **parameters: Any,
) -> NDArray[np.float64]:
    """Score captions against one reference set. The texts need not belong to any dataset.

    Parameters
    ----------
    references : str or sequence of str
        The texts that describe one image.
    captions : str or sequence of str
        N candidates.
    source : str, default="sbert"
        Name of a source ("sbert", "cbow", "cider", "spice", "meteor" or "wmd"), or of a label in the parameter file.
    documents : sequence of sequence of str, optional
        Reference sets of a background corpus. CIDEr counts its document frequencies over them and `references`. By
        default, each caption counts as one document.
    runtime : Runtime, optional
        Folder of models, device and threads.
    **parameters
        Parameters of the source: `model` of sbert, `vectors` of cbow, `tokenizer` of cider, `pooling`, ...

    Returns
    -------
    ndarray of shape (N,), float64
        Relevance in the source's range: -1 to 1 for cosines, 0 to 10 for CIDEr-D, 0 to 1 for the others.

    Raises
    ------
    UsageError
        If there is no such source or parameter, or the source cannot score texts by itself.
    MissingError
        If a model, word vectors or Java is missing. The message names the command that gets it.

    Examples
    --------
    >>> import relabel
    >>> relabel.score("a dog on a surfboard", ["a surfing dog", "two cats"], "cider", tokenizer="lower_split").round(2)
    array([0.52, 0.  ])
    """
    texts = [references] if isinstance(references, str) else list(references)
    candidates = [captions] if isinstance(captions, str) else list(captions)
    if not candidates:
        return np.empty(0)
    # A single reference set has no document frequencies: every n-gram would be in all documents and weigh nothing.
    background = [[text] for text in candidates] if documents is None else [list(document) for document in documents]
    settings = {f"sources.{source}": {"source": source, **parameters}} if parameters else {}
    project = Project(load_config(None, [], settings), runtime or Runtime())
    sets = [texts] * len(candidates) + background
    # One candidate per background document, only to make the document count.
    texts_to_score = candidates + [document[0] for document in background]
    label, parts = project.config.source(source), project.config.parts(source)
    return score_texts(label, sets, texts_to_score, project.runtime, parts).scores[: len(candidates)]


def load(
    folder: str | Path,
    label: str,
    split: str | None = None,
    *,
    params: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
) -> Label:
    """Open a label that `relabel run`, `relabel encode` or `encode` has built.

    Parameters
    ----------
    folder : str or Path
        Folder of the dataset, such as ``labels/coco``.
    label : str
        Name of the label in the parameter file, or of a source.
    split : {"train", "val", "test", "all"}, optional
        May be left out where the label is built for one split only.
    params : str or Path, optional
        Parameter file. Defaults to ``params.yaml`` in the working folder, else beside the folder of labels. Without
        such a file, all parameters have their defaults.
    settings : mapping, optional
        Single parameters by dotted name, such as ``{"sources.cbow.vectors": "glove"}``.
    runtime : Runtime, optional
        Folder of models, device, threads and memory.

    Returns
    -------
    Label

    Raises
    ------
    MissingError
        If the dataset or the label has not been built.
    UsageError
        If there is no such label, or several splits are built and none is named.
    CheckError
        If the label was built from other captions or with other parameters, or a file is damaged.

    Examples
    --------
    >>> labels = relabel.load("labels/coco", "sbert", split="test")  # doctest: +SKIP
    >>> labels.nearest("coco:770337", k=1)[0].caption_id  # doctest: +SKIP
    'coco:403176'
    """
    project = _project(folder, params, settings, runtime)
    if not (project.layout.corpus / MANIFEST).exists():
        todo = f'Name the folder of one dataset, such as "labels/coco", or build it with {command("run")}.'
        raise MissingError("no dataset", where=str(folder), todo=todo)
    return _open(project, label, split or _only_split(project, label))


def encode(
    folder: str | Path,
    label: str,
    split: str = "test",
    *,
    params: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
) -> Label:
    """Encode the captions of a split with a label, and open it. Finished work is not repeated.

    The captions of a published dataset (``labels/coco``) are fetched and ingested if they are not there. Captions of
    your own are ingested first: see `ingest`.

    Parameters
    ----------
    folder, label, params, settings, runtime
        As for `load`.
    split : {"train", "val", "test", "all"}, default="test"

    Returns
    -------
    Label

    Raises
    ------
    MissingError
        If captions, Java, a model or word vectors are missing. The message names the command that gets them.
    UsageError
        If there is no such label or split.

    Examples
    --------
    >>> labels = relabel.encode("labels/mine", "sbert")  # doctest: +SKIP
    """
    project = _project(folder, params, settings, runtime)
    if not (project.layout.corpus / MANIFEST).exists():
        stages.fetch_and_ingest(project)
    stages.build_encoding(project, label, split)
    return _open(project, label, split)


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
    """Write a label in a format of another tool. Finished work is not repeated.

    Parameters
    ----------
    folder, label, params, settings, runtime
        As for `load`.
    kind : str
        Name of the format: "hf", ... (`relabel export --help` lists them).
    split : {"train", "val", "test", "all"}, optional
        May be left out where the label is built for one split only.
    **parameters
        Parameters of `export.KIND` in the parameter file.

    Returns
    -------
    Path
        Folder of the files.

    Raises
    ------
    MissingError
        If the dataset or the label has not been built.
    UsageError
        If there is no such format, label or parameter, or the format cannot hold the label.
    CheckError
        If the label was built from other captions or with other parameters, or a file is damaged.

    Examples
    --------
    >>> relabel.export_label("labels/coco", "hf", "sbert", split="test").as_posix()  # doctest: +SKIP
    'labels/coco/exports/test/hf/sbert'
    """
    overrides = {f"export.{kind}.{name}": value for name, value in parameters.items()}
    project = _project(folder, params, {**(settings or {}), **overrides}, runtime)
    chosen = split or _only_split(project, label)
    job = stages.export_wds(project, label, chosen) if kind == "wds" else stages.export(project, kind, label, chosen)
    stages.run_logged(project, job)
    return job.out


def ingest(folder: str | Path, captions: str | Path, *, runtime: Runtime | None = None, **parameters: Any) -> Corpus:
    r"""Read captions of your own into a dataset.

    Parameters
    ----------
    folder : str or Path
        Folder of the dataset to make, such as ``labels/mine``.
    captions : str or Path
        File or folder of captions.
    runtime : Runtime, optional
    **parameters
        Parameters of `ingest` in the parameter file: `format`, `tokenizer`, `image_id_column`, `in_split`, ...

    Returns
    -------
    Corpus

    Raises
    ------
    UsageError
        If a parameter is wrong, or the folder already holds other captions.
    CheckError
        If the captions are not of the format or fail a check. The message names file and line.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("captions.csv").write_text("caption_id,image_id,split,text\n1,a,test,a dog\n2,a,test,a brown dog\n")
    >>> import relabel
    >>> corpus = relabel.ingest("labels/mine", "captions.csv", format="csv", tokenizer="none")
    >>> corpus.caption_ids
    ['mine:1', 'mine:2']
    """
    values = {f"ingest.{name}": value for name, value in parameters.items()}
    project = _project(folder, None, {"ingest.path": str(captions), **values}, runtime)
    stages.ingest(project)
    return project.corpus


def correlate(
    labels: Label | ScoreFunction | Sequence[Label | ScoreFunction],
    on: Against | Sequence[Against] = "cxc",
    *,
    runtime: Runtime | None = None,
) -> Report:
    r"""Compare labels, or functions of texts, with human judgement.

    Parameters
    ----------
    labels : Label, callable, or sequence of them
        Labels must be of one dataset and one split. A function takes P reference sets (list of list of str) and P
        candidates (list of str), and returns P numbers.
    on : str or sequence of str, default="cxc"
        Names of judged sets, such as "cxc", "eccv", "stsb" and "flickr8k-expert" (see docs/judged-sets.md), or files of
        judgements of your own. Functions are judged on sets of texts, so not on "cxc" and "eccv".
    runtime : Runtime, optional
        Folder of judged sets and threads, where only functions are judged. Defaults to the one of the labels.

    Returns
    -------
    Report
        ``pandas.DataFrame(report.records)`` has one row per figure; ``print(report)`` shows the tables.

    Raises
    ------
    UsageError
        If the labels are of different datasets, or a judged set does not apply to them.
    MissingError
        If the files of a judged set are missing.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> import relabel
    >>> pairs = [("a dog", "a brown dog", 4), ("two cats", "a cat", 3), ("a dog", "a cat", 1), ("a boat", "a cat", 0)]
    >>> lines = [json.dumps({"reference": r, "candidate": c, "human": h}) for r, c, h in pairs]
    >>> _ = Path("mine.jsonl").write_text("\n".join(lines))
    >>> def shared_words(references, candidates):
    ...     return [len(set(r[0].split()) & set(c.split())) for r, c in zip(references, candidates)]
    >>> report = relabel.correlate(shared_words, on="mine.jsonl")
    >>> report.records[0]["label"]
    'shared_words'
    """
    judged = [labels] if isinstance(labels, Label) or callable(labels) else list(labels)
    opened = [one for one in judged if isinstance(one, Label)]
    functions = {_function_name(one): one for one in judged if not isinstance(one, Label)}
    sets = [on] if isinstance(on, str) else list(on)
    if not judged:
        raise UsageError("correlate() needs at least one label or function")
    if len(functions) + len(opened) < len(judged):
        raise UsageError("two functions have one name", todo="Name each function differently: the report lists names.")
    if functions and (encoded := [name for name in sets if name in ENCODED]):
        todo = "Judge it on a set of texts, such as flickr8k-expert, or write scores to a file: --scores FILE."
        raise UsageError(f"a function of texts cannot be judged on {', '.join(encoded)}", todo=todo)
    if opened:
        first = opened[0]
        if any(one.project.layout != first.project.layout or one.split != first.split for one in opened):
            problem = "labels of one report must be of one dataset and one split"
            raise UsageError(problem, todo="Call correlate() for each.")
        judge = first.project.config.judge.model_copy(update={"split": first.split})
        config = first.project.config.model_copy(update={"judge": judge})
        project = replace(first.project, config=config)
    else:
        project = Project(load_config(None), runtime or Runtime())
    result = stages_correlate(project, [one.name for one in opened], sets, functions=functions)
    if result.problems:
        raise result.problems[0][1]
    return result.report


def run(
    folder: str | Path = "labels/coco",
    split: Any = None,
    labels: Sequence[str] = (),
    *,
    params: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
) -> EvaluationResult:
    """Build everything for one split of a dataset, as `relabel run` does. Finished work is not repeated.

    Parameters
    ----------
    folder, params, settings, runtime
        As for `load`.
    split : {"train", "val", "test", "all"}, optional
        Defaults to the judged split of the parameters.
    labels : sequence of str
        Labels to build. Defaults to the labels of the parameter file.

    Returns
    -------
    EvaluationResult
        `report` holds the tables, `problems` the labels that could not be built, `paths` the written folders.

    Raises
    ------
    RelabelError
        If the captions cannot be had, or no label can be built.

    Examples
    --------
    >>> result = relabel.run("labels/coco", labels=["cider", "sbert"])  # doctest: +SKIP
    """
    return stages_run(_project(folder, params, settings, runtime), split, labels)


def report(
    folder: str | Path = "labels/coco",
    split: Any = None,
    labels: Sequence[str] = (),
    *,
    params: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
) -> Path:
    """Write one HTML page about the labels of a split, as `relabel report` does.

    Parameters
    ----------
    folder, split, labels, params, settings, runtime
        As for `run`. Labels that do not exist yet are built.

    Returns
    -------
    Path
        The file ``page/SPLIT/report.html`` in the folder of the dataset. It opens in a browser without a network.

    Raises
    ------
    RelabelError
        If a label or a judged set of the page cannot be had.

    Examples
    --------
    >>> relabel.report("labels/coco", split="test")  # doctest: +SKIP
    PosixPath('labels/coco/page/test/report.html')
    """
    result = stages_report(_project(folder, params, settings, runtime), split, labels)
    if result.problems:
        raise result.problems[0][1]
    return result.paths["report"]


def _project(
    folder: str | Path, params: str | Path | None, settings: Mapping[str, Any] | None, runtime: Runtime | None
) -> Project:
    """Return the project of a dataset's folder, ``LABELS/DATASET``."""
    path, runtime = Path(folder), runtime or Runtime()
    values: dict[str, list[Any]] = {
        "--params": [params],
        "--set": [f"{name}={value}" for name, value in (settings or {}).items()],
        "--dataset": [path.name],
        "--data": [runtime.data if runtime.data != default_data() else None],
        "--labels": [path.parent if path.parent != Path("labels") else None],
    }
    # Messages name commands, which need the same options.
    repeat_options([(option, str(value)) for option in values for value in values[option] if value is not None])
    overrides = {**(settings or {}), "ingest.dataset": path.name}
    file = params_file(path.parent) if params is None else Path(params)
    config = load_config(file, [], overrides)
    return Project(config, runtime, path.parent)


def _open(project: Project, label: str, split: str) -> Label:
    return Label(project, label, split, stages.open_label(project, label, split))


def _only_split(project: Project, label: str) -> str:
    """Return the split for which a label is encoded, if there is only one."""
    project.config.params(label)  # an unknown label is a better message than a missing encoding
    encoded = [s for s in (*project.corpus.splits, "all") if (project.layout.encoding(s, label) / MANIFEST).exists()]
    if not encoded:
        where = str(project.layout.encoding("SPLIT", label))
        raise MissingError(f"{label} is not encoded", where=where, todo=f"Run {command('encode', '--label', label)}.")
    if len(encoded) > 1:
        todo = f'Name one of them: split="{encoded[0]}".'
        raise UsageError(f"{label} is encoded for the splits {', '.join(encoded)}", todo=todo)
    return encoded[0]


def _function_name(function: ScoreFunction) -> str:
    """Return the name of a function in reports; a callable object has the name of its class."""
    return str(getattr(function, "__name__", type(function).__name__))


def _check_sequence(name: str, ids: Sequence[str]) -> None:
    # A string is a sequence of strings: without this check its letters would be looked up.
    if isinstance(ids, str):
        raise UsageError(f"{name} must be a sequence of ids, found the string {ids!r}", todo=f"{name}=[{ids!r}]")
