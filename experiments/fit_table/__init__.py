"""The table of losses: every loss trained with a chosen setting on proxy features, and the papers' claims."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from experiments.fit_table.claims import claims_tables, judge_claims
from experiments.fit_table.labels import draw_labels, label_agreement, label_points
from experiments.fit_table.search import Setting, choose_setting
from experiments.fit_table.table import summary, to_table
from experiments.fit_table.trials import Inputs, Record, Trial, TrialFile, average_trial, make_trial, run_trials
from experiments.params import Experiments
from experiments.proxy_features import PROXY, proxy_features, remaining_project
from relabel.core.errors import MissingError
from relabel.core.tables import Table, markdown
from relabel.datasets import locate
from relabel.judge.eccv import FILES
from relabel.stages import Session, build_encoding, ingestion, lookup_export, neighbour_table, open_corpus
from relabel.store.files import write_text


class FitTable:
    """The trainings of a table.

    Parameters
    ----------
    session : Session
    experiments : Experiments
    trials : Path or None
        File of finished trainings, whose inputs are taken to be those of this project. By default that of the inputs of
        this project, which are then built.
    """

    def __init__(self, session: Session, experiments: Experiments, trials: Path | None = None) -> None:
        self.session, self.params, self.trials = session, experiments.fit_table, trials
        self.features, self.remaining = experiments.proxy_features, remaining_project(session)
        self.out = self.remaining.folder() / self.params.name

    @cached_property
    def inputs(self) -> tuple[Inputs, str]:
        """The folders of all trainings, and a digest of their content: built on first use."""
        params, remaining, folder = self.params, self.remaining, self.remaining.folder
        features, judges = proxy_features(self.session, self.features), dict.fromkeys(params.judges)
        digests, lookups = [features.run()[0].identity], {}
        ingestion(remaining).run()
        # Graded batches are drawn from neighbours among the training captions.
        first = params.train_labels[0]
        near = remaining.config.neighbours.model_copy(update={"k": params.neighbours})
        searched = replace(remaining, config=remaining.config.model_copy(update={"neighbours": near}))
        for label in dict.fromkeys([*params.train_labels, *judges]):
            split = "all" if label in (first, *judges) else "train"
            build_encoding(remaining, label, split)
            if label == first:
                neighbour_table(searched, label, "train", "captions", "all").run()
            job = lookup_export(searched, label, split, "train" if label == first else None)
            digests.append(job.run()[0].identity)
            lookups[label] = job.out
        digest, eccv = hashlib.sha256("".join(digests).encode()).hexdigest()[:8], None
        if open_corpus(self.session).namespace == "coco":
            with suppress(MissingError):
                eccv = locate("eccv", FILES["i2t"], self.session.runtime.data).parent
        judged, runs = tuple(lookups[label] for label in judges), folder() / "runs" / digest
        return Inputs(features.out, folder("corpus"), runs, lookups, judged, eccv), digest

    @cached_property
    def records(self) -> TrialFile:
        """The finished trainings."""
        return TrialFile(self.trials or self.remaining.folder() / f"runs/trials-{self.inputs[1]}.jsonl")

    def run(self) -> tuple[dict[str, Any], list[Table]]:
        """Run every training that has no record, write the table, and return its numbers and its form.

        For each model, the settings of all rows are chosen first; then all rows are trained with the table's seeds.
        """
        finals: dict[str, dict[tuple[str, int], Trial]] = {}
        results: dict[str, dict[str, list[Record]]] = {}
        # An average is made of the trainings of other models, which come first.
        for model, budget in sorted(self.params.models.items(), key=lambda item: bool(item[1].average)):
            rows, seeds = self.params.rows_of(model), self.params.seeds
            keys = list(itertools.product(rows, seeds))
            if budget.average:
                parts = [finals[part] for part in budget.average]
                finals[model] = {key: average_trial(model, [part[key] for part in parts]) for key in keys}
            else:
                chosen = self._choose_settings(model)
                finals[model] = {key: self._trial(model, key[0], chosen[key[0]], key[1], test=True) for key in keys}
            trained = self._train(finals[model])
            results[model] = {name: [trained[name, seed] for seed in seeds] for name in rows}
        return self._write({model: results[model] for model in self.params.models})

    def _trial(self, model: str, name: str, setting: Setting, seed: int, test: bool) -> Trial:
        label = self.params.rows_of(model)[name].label or self.params.train_labels[0]
        bounds = self.session.config.source(label).spec.bounds
        return make_trial(self.params, model, name, bounds, setting, seed, test)

    def _choose_settings(self, model: str) -> dict[str, Setting]:
        """Return the setting of each row of a model; a row of a further label keeps the learning rate of its loss."""
        params, chosen, label_rows = self.params, dict[str, Setting](), self.params.label_rows(model)
        finalists = params.models[model].finalists or params.finalists
        for name, row in params.rows_of(model).items():
            lrs = (chosen[label_rows[name][0]].lr,) if name in label_rows else params.lrs
            train = partial(self._scores, model, name)
            chosen[name] = choose_setting(lrs, row.values, params.extend, finalists, params.search_seeds, train)
        return chosen

    def _scores(self, model: str, name: str, settings: Sequence[Setting], seeds: Sequence[int]) -> dict[Setting, float]:
        """Return the mean RSUM on val of the settings of a row; -inf if a loss was not finite."""
        trials = {key: self._trial(model, name, *key, test=False) for key in itertools.product(settings, seeds)}
        values = {
            key: -math.inf if record["val"] is None else record["val"] for key, record in self._train(trials).items()
        }
        return {setting: sum(values[setting, seed] for seed in seeds) / len(seeds) for setting in settings}

    def _train(self, trials: Mapping[Any, Trial]) -> dict[Any, Record]:
        """Run the trials that have no record, and return the records of all under the same keys."""
        if any(trial.key not in self.records.records for trial in trials.values()):
            run_trials(trials.values(), self.inputs[0], self.params, self.records, self.session.runtime)
        return {name: self.records.records[trial.key] for name, trial in trials.items()}

    def _write(self, results: Mapping[str, Mapping[str, Sequence[Record]]]) -> tuple[dict[str, Any], list[Table]]:
        params = self.params
        rows = {model: summary(of_model, params) for model, of_model in results.items()}
        claims = [claim for model, of_model in results.items() for claim in judge_claims(model, of_model, params)]
        notes = [
            PROXY,
            f"Mean ± standard deviation over seeds {', '.join(map(str, params.seeds))}; the best RSUM on val counts.",
            "Settings that were searched have the best mean RSUM on val over seeds "
            f"{', '.join(map(str, params.search_seeds))}.",
            f"RSUM, nDCG, CS@100, Kendall tau-b and NCS (own items left out) are of the first {params.graded:,} test "
            "images, ECCV is mAP@R on all. In parentheses: the label that judges; *: it is the label of the training.",
            f"Rows are trained with {params.train_labels[0]} where they name no label.",
        ]
        body: dict[str, Any] = {
            "notes": notes,
            "params": params.model_dump(mode="json"),
            "rows": rows,
            "claims": claims,
        }
        tables = [*to_table(rows, params, notes), *claims_tables(claims)]
        if any(budget.by_label for budget in params.models.values()):
            body["labels"] = label_points(results, params, self._agreement())
            draw_labels(body["labels"], self.out / "labels.png")
        write_text(self.out / "table.json", json.dumps(body, indent=1, ensure_ascii=False) + "\n")
        write_text(self.out / "table.md", "\n\n".join(map(markdown, tables)) + "\n")
        return body, tables

    def _agreement(self) -> dict[str, Record]:
        """Return the agreement of labels with people, which is recorded as trainings are."""
        keys = {label: f"agreement of {label}" for label in self.params.train_labels}
        if missing := [label for label, key in keys.items() if key not in self.records.records]:
            for label, agreement in label_agreement(self.session, missing).items():
                self.records.add({"key": keys[label], **agreement})
        return {label: self.records.records[key] for label, key in keys.items()}
