"""Agreement of labels and functions with human judgement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relabel.api.labels import Label
from relabel.api.scorer import Scorer
from relabel.config import load_config
from relabel.core.errors import UsageError, naming_extras
from relabel.core.parameters import validate
from relabel.core.runtime import Runtime
from relabel.corpus.splits import named_split
from relabel.judge import JudgeParams
from relabel.judge.report import Report
from relabel.judge.scores import ScoreFunction, TextFunction
from relabel.stages import Session
from relabel.stages.correlate import correlate as stages_correlate


@naming_extras()
def correlate(
    labels: Label | Scorer | ScoreFunction | Sequence[Label | Scorer | ScoreFunction],
    on: str | Path | Sequence[str | Path] = "cxc",
    *,
    runtime: Runtime | None = None,
    **parameters: Any,
) -> Report:
    r"""Compare labels, or functions of texts, with human judgement.

    Parameters
    ----------
    labels : Label, Scorer, callable, or sequence of them
        Labels must be of one dataset and one split. A function takes P reference sets (list of list of str) and P
        candidates (list of str), and returns P finite numbers, like `Scorer.pairs`, the method that is called for a
        scorer. It is called first with two pairs and then with all pairs. Give a CIDEr scorer its `documents`.
    on : str, Path or sequence of them, default="cxc"
        Names of evaluation sets, such as "cxc", "eccv", "stsb" and "flickr8k-expert" (see docs/evaluation-sets.md), or
        your own files of judgements. Functions are not judged on "eccv". On "cxc", they are judged by the protocol of
        labels: the references are an image's first five captions, and images are compared caption by caption.
    runtime : Runtime, optional
        Folder of captions and evaluation sets, and threads, for calls that judge only functions. Defaults to the
        runtime of the labels.
    **parameters
        Parameters of `judge` in the parameter file: `statistic` of a file of judgements ("pearson", "spearman",
        "tau_b", "tau_c"), `resamples`, `gate`, ...; `split` of "cxc" if only functions are judged.

    Returns
    -------
    Report
        ``pandas.DataFrame(report.records)`` has one row per figure; ``print(report)`` shows the tables.

    Raises
    ------
    UsageError
        If a parameter is wrong, the labels are of different datasets, or an evaluation set does not apply to them.
    CheckError
        If a function does not return one finite number per pair.
    MissingError
        If the files of an evaluation set are missing, or COCO's captions for "cxc". The message names the command that
        gets them.

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
    given: Any = labels
    judged = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    sets = [str(on)] if isinstance(on, str | Path) else list(map(str, on))
    if not judged or not sets:
        raise UsageError("correlate() needs at least one label or function, and one evaluation set")
    opened = [one for one in judged if isinstance(one, Label)]
    functions = {one.name: one for one in map(_function, judged) if one}
    if len(functions) + len(opened) < len(judged):
        raise UsageError("two functions have one name", hint="Name each function differently: the report lists names.")
    session = opened[0].session if opened else Session(load_config(None), runtime or Runtime())
    judge = validate(JudgeParams, session.config.judge.model_dump() | parameters, "correlate()")
    session = replace(session, config=session.config.model_copy(update={"judge": judge}))
    if opened:
        split = named_split(parameters.get("split", opened[0].split))
        if any(one.session.folder() != session.folder() or one.split != split for one in opened):
            problem = "labels of one report must be of one dataset and one split"
            raise UsageError(problem, hint="Call correlate() for each.")
        session = session.judged_on(split)
    result = stages_correlate(session, [one.name for one in opened], sets, functions=list(functions.values()))
    if result.problems:
        raise result.problems[0][1]
    return result.report


def _function(judged: Any) -> TextFunction | None:
    if isinstance(judged, Label):
        return None
    if isinstance(judged, Scorer):
        return TextFunction(judged.name, judged.pairs, judged.pooling)
    if not callable(judged):
        problem = f"labels must be opened labels, scorers or functions, found {judged!r}"
        raise UsageError(problem, hint="Open a label with load(), or name a source in Scorer().")
    # A callable object has the name of its class.
    return TextFunction(getattr(judged, "__name__", type(judged).__name__), judged)
