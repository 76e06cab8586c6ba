"""init: the parameter file of a new project, with DVC stages and examples on request."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from relabel.config import load_config
from relabel.core.errors import MissingError, UsageError
from relabel.core.layout import check_name
from relabel.core.runtime import Runtime
from relabel.stages.ingest import FETCHED
from relabel.stages.project import Project
from relabel.stages.tune import TUNED
from relabel.store.files import write_text

PARAMS, STAGES, EXAMPLES = "params.yaml", "dvc.yaml", "examples"
_HEAD = "# `dvc repro`: the stages of `relabel run` for the labels of params.yaml, with DVC's cache.\n"


def init(
    folder: Path, dataset: str = "coco", path: Path | None = None, dvc: bool = False, examples: bool = False
) -> list[Path]:
    """Write the parameter file of a project; return the files and folders that were written.

    `folder`: folder of the project. `dataset`: name of the corpus. `path`: captions of the corpus; those of `relabel
    fetch` if not given. `dvc`: whether to write `dvc.yaml`, with one stage per verb. `examples`: whether to
    copy the examples of training loops.
    """
    check_name("dataset", dataset)
    names = [PARAMS, *([STAGES] if dvc else []), *([EXAMPLES] if examples else [])]
    paths = [folder / name for name in names]
    # All names are checked before the first file is written.
    if existing := [str(p) for p in paths if p.exists() or p.is_symlink()]:
        todo = "Remove it, or run `relabel init` in another folder."
        raise UsageError(f"{', '.join(existing)} exists and is not replaced", todo=todo)
    if dvc:
        # The stages need the `pipeline` extra. Without it, no file is written.
        import relabel.stages.run  # noqa: F401

    write_text(folder / PARAMS, _params_text(dataset, path))
    if dvc:
        # Read from the file just written, so that stages and parameters agree.
        body = _dvc_stages(Project(load_config(folder / PARAMS), Runtime(data=Path("data"))))
        write_text(folder / STAGES, _HEAD + yaml.safe_dump(body, sort_keys=False, width=120))
    if examples:
        shutil.copytree(_template(EXAMPLES), folder / EXAMPLES)
    return paths


def _params_text(dataset: str, path: Path | None) -> str:
    """Return the parameter file of the repository, for the captions of a dataset."""
    lines = f"  dataset: {dataset}\n"
    if path is not None:
        # A string of JSON is one of YAML, whatever characters the path has.
        lines += f"  path: {json.dumps(str(path))}\n"
    elif dataset not in FETCHED:
        lines += "  # path: captions.csv # your captions; or `relabel ingest --path FILE`\n"
    return _template(PARAMS).read_text(encoding="utf-8").replace("  dataset: coco\n", lines, 1)


def _template(name: str) -> Path:
    """Return a file or folder of the installed package, or of the root of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "templates", package.parents[1]):
        if (folder / name).exists():
            return folder / name
    raise MissingError(f"no {name} here", where=str(package), todo="Install relabel-itr again.")


def _dvc_stages(project: Project) -> dict[str, Any]:
    """Return the stages of `relabel run` with their commands, dependencies, parameters and outputs."""
    # Judging needs the `pipeline` extra, which a parameter file does not.
    from relabel.stages.run import labels_to_export, resolve_split

    config, layout = project.config, project.layout
    project, split, judged = resolve_split(project, None)
    # The splits of captions of the user's own are not known yet.
    if config.ingest.dataset not in FETCHED:
        split = "all"
    exported = labels_to_export(project, [])
    # Only judged splits need encodings of every label; elsewhere those to be exported are enough.
    labels = list(config.sources) if judged else exported
    vectors = [label for label in exported if config.source(label).spec.kind == "vectors"]
    models = list(dict.fromkeys(model for label in labels for model in config.params(label).tuned_models()))
    stages: dict[str, Any] = {}

    def add(name: str, commands: list[str], deps: list[Path], params: list[str], outs: list[Path]) -> list[Path]:
        stage: dict[str, Any] = {
            "cmd": [f"relabel {command}" for command in commands],
            "deps": [str(path) for path in deps],
        }
        # relabel replaces what is not current, so DVC leaves outputs in place.
        stage |= {"params": params, "outs": [{str(path): {"persist": True}} for path in outs]}
        if outs:
            stages[name] = {key: value for key, value in stage.items() if value}
        return outs

    captions = [] if config.ingest.path is None else [config.ingest.path]
    preview = ["run --dry-run"]
    if not config.ingest.has_location and (files := FETCHED.get(config.ingest.dataset)):
        captions = add("fetch", [*preview, f"fetch {files}"], [], [], [project.runtime.data / files])
        preview = []
    corpus = add("ingest", [*preview, "ingest"], captions, ["ingest"], [layout.corpus])
    tuned = [TUNED[name][1](project) for name in models]
    add("tune", [f"tune {name}" for name in models], corpus, [f"tune.{name}" for name in models], tuned)
    outs, command = [layout.encoding(split, label) for label in labels], f"--label {','.join(labels)} --split {split}"
    encodings = add("encode", [f"encode {command}"], [*corpus, *tuned], ["encode", "sources"], outs)
    judgements: list[Path] = []
    if judged:
        outs = [folder(split, label) for folder in (layout.judgement, layout.figures) for label in labels]
        judgements = add("judge", [f"judge {command}"], encodings, ["sources", "judge"], outs)
    outs, served = [layout.neighbours(split, "captions", label) for label in exported], ",".join(exported)
    command = f"neighbours --label {served} --within {split}"
    tables = add("neighbours", [command], encodings, ["sources", "neighbours"], outs)
    commands = [f"export lookup --label {served} --split {split}"]
    outs = [layout.lookup(split, label) for label in exported]
    if vectors:
        commands.append(f"export faiss --label {','.join(vectors)} --split {split}")
        outs += [layout.export(split, "faiss", label) for label in vectors]
    add("export", commands, tables, ["sources", "export"], outs)
    reports: list[Path] = []
    if judged:
        outs = [layout.report(split), *([layout.ranking(split)] if "eccv" in judged else [])]
        command = f"correlate --on {','.join(judged)}"
        reports = add("correlate", [command], judgements, ["sources", "judge"], outs)
    if labels:
        deps = [*(reports or encodings), *tables]
        add("report", [f"report --split {split}"], deps, ["sources", "judge"], [layout.page(split)])
    return {"stages": stages}
