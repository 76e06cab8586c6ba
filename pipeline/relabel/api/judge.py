"""The agreement of labels and functions with human judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relabel.api.labels import Label
from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.judge.report import Report
from relabel.judge.scores import ScoreFunction
from relabel.stages import Project
from relabel.stages.correlate import Against
from relabel.stages.correlate import correlate as stages_correlate


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
