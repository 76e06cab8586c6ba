"""Contract: a search answers label by label, fast labels first, and works on a label only when its answer is asked for.
A label that cannot answer has its reason; if none can, the first reason is raised.
"""

from __future__ import annotations

import pytest

from relabel.core.errors import UsageError
from relabel.stages import Session
from relabel.stages import nearest as module


def test_answers_come_label_by_label(small_project: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = list[str](), module.open_label

    def open_label(session: Session, label: str, *arguments: object) -> object:
        opened.append(label)
        return real(session, label, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "open_label", open_label)
    # Vectors and n-grams are fast; the baseline has no scores of new texts.
    query, answers = module.search_labels(small_project, "a dog", None, ["same_image", "cider", "cbow"], 3, "all")
    assert (query, opened) == ("a dog", [])
    for n, name in enumerate(("cider", "cbow"), 1):
        label, hits = next(answers)
        assert (label, len(opened)) == (name, n)
        assert isinstance(hits, list)
        assert len(hits) == 3
    label, reason = next(answers)
    assert label == "same_image"
    assert isinstance(reason, UsageError)
    assert next(answers, None) is None


def test_a_search_without_any_answer_raises(small_project: Session) -> None:
    _, answers = module.search_labels(small_project, "a dog", None, ["same_image"], 3, "all")
    with pytest.raises(UsageError, match="same_image"):
        list(answers)
