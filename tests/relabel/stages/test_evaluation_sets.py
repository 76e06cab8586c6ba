"""Contract: `correlate` with "all" evaluates the available evaluation sets and names the others. Figures are kept until
texts, parameters or judgements change.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel.config import Config, load_config
from relabel.core.errors import MissingError
from relabel.core.runtime import Runtime
from relabel.datasets.evaluation_sets import EvaluationSet, Judgements, set_names
from relabel.judge.figures import set_figures
from relabel.judge.scores import score_judgements
from relabel.stages import Session, text_sets
from relabel.stages.correlate import correlate

TEXTS = [("a dog", "a brown dog", 4), ("two cats", "a cat", 3), ("a dog", "a cat", 1), ("a boat", "a cat", 0)]


def read(_: Any) -> Judgements:
    return Judgements(
        ids=["1", "2", "3", "4"],
        references=[[reference] for reference, _, _ in TEXTS],
        candidates=[candidate for _, candidate, _ in TEXTS],
        ratings=np.array([[float(human)] for _, _, human in TEXTS]),
        groups=["all"] * 4,
        clusters=["0", "1", "2", "3"],
    )


def absent(_: Any) -> Judgements:
    raise MissingError("no file F.txt", where="data/f", hint="Get it.")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    def open_set(name: str) -> EvaluationSet:
        return EvaluationSet(
            name=name, title=name, dataset=name, read=read if name == "vsts" else absent, statistics=("pearson",),
            pair_ids="a number", protocol="P.",
        )  # fmt: skip

    monkeypatch.setattr(text_sets, "evaluation_set", open_set)
    settings = ["ingest.dataset=mine", "judge.resamples=20", "sources={cider: {source: cider, tokenizer: lower_split}}"]
    # Parameters as a file gives them, so that the report of all of its labels is written.
    config = Config(**load_config(None, settings).model_dump())
    return Session(config, Runtime(data=tmp_path / "data"), tmp_path / "labels")


def test_all_evaluates_available_sets_and_names_the_others(session: Session, tmp_path: Path) -> None:
    result = correlate(session, ["cider"], ["all"])
    assert result.problems == []
    table = result.report.tables[-1]
    assert table.header == ("label", "vsts", "captions/s", "bytes/caption")
    for name in set_names():
        assert any(note.startswith(f"Not judged: {name} (") and "Get it." in note for note in table.notes) != (
            name == "vsts"
        )
    for name in ("cxc", "eccv"):
        assert any(note.startswith(f"Not judged: {name} (") and "not those of mine" in note for note in table.notes)
    folder = result.paths["tables, pictures"] / "judged"
    assert {path.name for path in folder.iterdir()} >= {"judged.csv", "judged.json", "judged.md", "judged.tex"}
    assert (folder / "judged.png").read_bytes().startswith(b"\x89PNG")
    assert result.report.picture is not None
    result.report.picture(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").is_file()


def test_figures_are_kept_until_texts_parameters_or_judgements_change(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(text_sets, "score_judgements", lambda *a: calls.append("score") or score_judgements(*a))
    monkeypatch.setattr(text_sets, "set_figures", lambda *a, **k: calls.append("compare") or set_figures(*a, **k))

    def figures(**judge: int) -> dict[str, Any]:
        """Return the record of cider, under edited parameters of `judge`."""
        update = {"judge": session.config.judge.model_copy(update=judge)}
        calls.clear()
        edited = replace(session, config=session.config.model_copy(update=update))
        return correlate(edited, ["cider"], ["vsts"]).report.records[0]

    first = figures()
    assert calls == ["score", "compare"]
    assert figures() == first
    assert calls == []
    figures(seed=1)
    assert calls == ["compare"]
    monkeypatch.setattr(sys.modules[__name__], "TEXTS", [("a dog", "a brown dog", 1), *TEXTS[1:]])
    assert figures()["pearson"] != first["pearson"]
    assert calls == ["compare"]
    monkeypatch.setattr(sys.modules[__name__], "TEXTS", [("a dog", "a cat", 4), *TEXTS[1:]])
    figures()
    assert calls == ["score", "compare"]
