"""Scores of texts, and the agreement of labels and functions with human judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.api.labels import Label
from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.judge.report import Report
from relabel.judge.scores import ScoreFunction
from relabel.sources.texts import score_texts
from relabel.stages import Project
from relabel.stages.correlate import Against
from relabel.stages.correlate import correlate as stages_correlate


def score(
    references: str | Sequence[str] | Sequence[Sequence[str]],
    captions: str | Sequence[str],
    source: str = "sbert",
    *,
    documents: Sequence[Sequence[str]] | None = None,
    runtime: Runtime | None = None,
    **parameters: Any,
) -> NDArray[np.float64]:
    """Score captions against one reference set, or each against its own. The texts need not belong to any dataset.

    Parameters
    ----------
    references : str, sequence of str, or sequence of sequences of str
        The texts that describe one image; or N reference sets, one for each caption.
    captions : str or sequence of str
        N candidates.
    source : str, default="sbert"
        Name of a source ("sbert", "cbow", "cider", "spice", "meteor" or "wmd"), or of a label in the parameter file.
    documents : sequence of sequence of str, optional
        Reference sets of a background corpus. CIDEr counts its document frequencies over them and `references`. By
        default, each caption counts as one document, if there is one reference set.
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
        If there is no such source or parameter, the source cannot score texts by itself, or there are several reference
        sets and not as many captions.
    MissingError
        If a model, word vectors or Java is missing. The message names the command that gets it.

    Examples
    --------
    >>> import relabel
    >>> relabel.score("a dog on a surfboard", ["a surfing dog", "two cats"], "cider", tokenizer="lower_split").round(2)
    array([0.52, 0.  ])
    >>> relabel.score([["a dog"], ["a cat"]], ["a dog", "two cats"], "cider", tokenizer="lower_split").round(2)
    array([5., 0.])
    """
    texts: Any = [references] if isinstance(references, str) else list(references)
    candidates = [captions] if isinstance(captions, str) else list(captions)
    if not candidates:
        return np.empty(0)
    one = all(isinstance(text, str) for text in texts)
    # A single reference set has no document frequencies: every n-gram would be in all documents and weigh nothing.
    by_default = [[text] for text in candidates if one]
    background = by_default if documents is None else [list(document) for document in documents]
    settings = {f"sources.{source}": {"source": source, **parameters}} if parameters else {}
    project = Project(load_config(None, [], settings), runtime or Runtime())
    sets = ([texts] * len(candidates) if one else texts) + background
    # One candidate per background document, only to make the document count.
    texts_to_score = candidates + [document[0] for document in background]
    label, parts = project.config.source(source), project.config.parts(source)
    return score_texts(label, sets, texts_to_score, project.runtime, parts).scores[: len(candidates)]


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
        Names of evaluation sets, such as "cxc", "eccv", "stsb" and "flickr8k-expert" (see docs/evaluation-sets.md), or
        files of judgements of your own. Functions are judged on sets of texts, so not on "cxc" and "eccv".
    runtime : Runtime, optional
        Folder of evaluation sets and threads, where only functions are judged. Defaults to the one of the labels.

    Returns
    -------
    Report
        ``pandas.DataFrame(report.records)`` has one row per figure; ``print(report)`` shows the tables.

    Raises
    ------
    UsageError
        If the labels are of different datasets, or an evaluation set does not apply to them.
    MissingError
        If the files of an evaluation set are missing.

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
    # A callable object has the name of its class.
    functions = {getattr(f, "__name__", type(f).__name__): f for f in judged if not isinstance(f, Label)}
    sets = [on] if isinstance(on, str) else list(on)
    if not judged:
        raise UsageError("correlate() needs at least one label or function")
    if len(functions) + len(opened) < len(judged):
        raise UsageError("two functions have one name", todo="Name each function differently: the report lists names.")
    if opened:
        first = opened[0]
        if any(one.project.folder() != first.project.folder() or one.split != first.split for one in opened):
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
