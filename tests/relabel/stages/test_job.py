"""Contract: a trial with another base model does not replace a tuned model, whatever the location of the base."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel.stages.job import model_guard
from relabel.store.manifest import Manifest

Overridden = Callable[[dict[str, str]], Project]
CONTENT = {"base": "0", "copy": "0", "other": "1"}
"""Base models, and sha256 of their content."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Overridden:
    """Return a function from overrides to a project whose parameter file tunes `base`."""
    path = tmp_path / "params.yaml"
    path.write_text("tune: {bert_sts: {base: base}, sbert: {base: base}}")

    def find_model(name: str, _: str | None) -> SimpleNamespace:
        return SimpleNamespace(sha256=lambda: CONTENT[name])

    monkeypatch.setattr("relabel.sources.models.files.find_model", find_model)
    runtime = Runtime(data=tmp_path)
    return lambda overrides: Project(load_config(path, overrides=overrides), runtime, tmp_path / "labels")


@pytest.mark.parametrize("section", ["bert_sts", "sbert"])
def test_a_trial_with_another_base_is_refused(section: str, project: Overridden) -> None:
    project_of = project({})
    semantic = getattr(project_of.config.tune, section).model_dump(mode="json", exclude={"base", "revision"})
    previous = Manifest("model", "tuned", "0", semantic, {"base": "0"}, {"base": "base"}, {}, {})
    assert model_guard(project_of, section) is None  # the file may be edited
    same = model_guard(project({f"tune.{section}.base": "copy"}), section)
    assert same is not None
    same(previous)
    other = model_guard(project({f"tune.{section}.base": "other"}), section)
    assert other is not None
    with pytest.raises(UsageError, match=r"base \(base there, other here\).*--out.*--replace"):
        other(previous)
