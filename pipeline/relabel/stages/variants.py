"""Parameters that an artefact is made with, and protection of results from trials.

The artefacts of a label are those of the parameter file: the file may be edited, and what it changed is built again. A
trial, which overrides the file by options or settings, does not take their place, nor does another trial or the file
take the place of a trial, unless `--replace` is given.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from relabel.config import Config
from relabel.core.errors import RelabelError, UsageError
from relabel.stages.project import Project
from relabel.store.artefact import Guard
from relabel.store.manifest import Manifest

Values = dict[str, Any]
Advice = Callable[[Sequence[Any]], str]
_KEY = "variant"


@dataclass(frozen=True)
class Variant:
    """Parameters of one artefact.

    Attributes
    ----------
    values : dict of str to Any
        Dotted names to values, JSON-able.
    trial : bool
        Whether the command overrides the parameter file in any of them.
    replace : bool
        Whether to replace other variants.
    advice : callable
        Says how to keep both variants, given the values that differ.
    """

    values: Values
    trial: bool
    replace: bool
    advice: Advice = field(default=lambda _: "Edit params.yaml, which replaces results.")

    def folder(self, name: str) -> str:
        """Return the name of a folder; that of a trial ends in a digest of its parameters."""
        text = json.dumps(self.values, sort_keys=True)
        return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}" if self.trial else name

    def record(self) -> dict[str, Any]:
        """Return the entry of a manifest's `runtime`, which `check` reads."""
        return {_KEY: {"values": self.values, "trial": self.trial}}

    def check(self, previous: Manifest) -> None:
        """Refuse to replace an artefact of other parameters, if this one or the previous one is a trial.

        Raises
        ------
        UsageError
            With the parameters that differ, and how to keep both artefacts.
        """
        known = previous.runtime.get(_KEY)
        if self.replace or known is None or known["values"] == self.values or not (self.trial or known["trial"]):
            return
        names = [n for n in {**known["values"], **self.values} if known["values"].get(n) != self.values.get(n)]
        differing = ", ".join(f"{n} ({known['values'].get(n)} there, {self.values.get(n)} here)" for n in names)
        whose = "overridden by the command" if self.trial else "of a trial, which overrode the parameter file"
        what = f"{previous.kind} {previous.name} would be replaced, and parameters are {whose}: {differing}"
        if not self.trial:
            raise UsageError(what, todo="Replace it with --replace, or repeat the options of the trial.")
        advice = self.advice([self.values[name] for name in names if name in self.values])
        raise UsageError(what, todo=f"{advice} Or replace it with --replace.")


def variant(
    project: Project, values: Callable[[Config], Values], own: Values | None = None, advice: Advice | None = None
) -> Variant:
    """Hold the parameters of a project against those of the parameter file.

    Parameters
    ----------
    project : Project
    values : callable
        Returns the parameters of an artefact, given all parameters.
    own : dict of str to Any, optional
        Parameters that come from the call and not from the file; they make no trial.
    advice : callable, optional
        See `Variant`.
    """
    config, here = project.config, values(project.config)
    made = Variant(here | (own or {}), here != _of_file(config, values), project.runtime.replace)
    return made if advice is None else replace(made, advice=advice)


def encoding_variant(project: Project, label: str) -> Variant:
    """Return the parameters of a label's encoding. A refused trial is advised to take a label of its own."""

    def values(config: Config) -> Values:
        return label_values(config, label) | {"encode.rows_per_shard": config.encode.rows_per_shard}

    return variant(project, values, advice=partial(_name_trial, project.config, label))


def label_values(config: Config, label: str) -> Values:
    """Return the parameters of a label and of all labels that it is made of."""
    own = config.params(label).model_dump(mode="json")
    values = {f"sources.{label}.{name}": value for name, value in own.items()}
    for part in config.source(label).input_labels():
        values |= label_values(config, part)
    return values


def report_variant(project: Project, labels: Sequence[str]) -> Variant:
    """Return the parameters of a report, which is a trial if it holds some labels, or others than the file's.

    Parameters
    ----------
    project : Project
    labels : sequence of str
        Labels of the report; all if empty.
    """

    def values(config: Config) -> Values:
        sources = {name: params.model_dump(mode="json") for name, params in config.sources.items()}
        judge = config.judge.model_dump(mode="json", exclude={"split"})
        return {"labels": sorted(labels or sources), "sources": sources, "judge": judge}

    whole = not labels or set(labels) == set(project.config.file.sources)
    made = variant(project, values)
    return replace(made, trial=made.trial or not whole)


def model_guard(
    project: Project, section: str, keep: str = "Give the new model a folder of its own with --out"
) -> Guard | None:
    """Return a guard that keeps a model of other parameters; None where the parameters are those of the file.

    Parameters
    ----------
    project : Project
    section : str
        The model's block of `tune` in the parameter file.
    keep : str
        Advice on keeping both models.

    Raises
    ------
    UsageError
        By the guard, with the parameters that differ, and how to keep both models.
    """
    values = variant(project, lambda config: getattr(config.tune, section).model_dump(mode="json"))

    def check(previous: Manifest) -> None:
        known = previous.semantic
        if "base" in values.values and _other_base(values.values, previous):
            known = known | {"base": previous.facts["base"]}
        names = [name for name, value in values.values.items() if known.get(name, value) != value]
        if names:
            differing = ", ".join(f"{n} ({known[n]} there, {values.values[n]} here)" for n in names)
            what = f"model {previous.name} would be replaced, and the command overrides the file: {differing}"
            raise UsageError(what, todo=f"{keep}, or replace the model with --replace.")

    return check if values.trial and not values.replace else None


def _other_base(values: Values, previous: Manifest) -> bool:
    """Return whether a model was tuned from another base model, wherever both lie and however they are named."""
    from relabel.sources.models.files import find_model

    return previous.inputs["base"] != find_model(values["base"], values["revision"]).sha256()


def _of_file(config: Config, values: Callable[[Config], Values]) -> Values | None:
    """Return the parameters that the file gives; None where it has no such label."""
    try:
        return values(config.file)
    except RelabelError:
        return None


def _name_trial(config: Config, label: str, differing: Sequence[Any]) -> str:
    """Write the options that give a trial a label of its own, named by the last value that differs."""
    params = config.params(label)
    stem = Path(str(differing[-1])).stem.lower() if differing else ""
    ending = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:30] or "trial"  # --set takes a dot for a level
    given = {"source": params.source} | params.model_dump(mode="json", exclude_defaults=True)
    body = yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=10_000).strip()
    return f"Name the trial: --label {label}-{ending} --set 'sources.{label}-{ending}={body}'."
