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
    fetch` if not given. `dvc`: whether to write `dvc.yaml`, with one stage per verb and label. `examples`: whether to
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
    stages: dict[str, Any] = {}

    def add(name: str, command: str, deps: list[Path | str], params: list[str], out: Path, *more: Path) -> Path:
        outs = [str(path) for path in (out, *more)]
        stage = {"cmd": f"relabel {command}", "deps": [str(d) for d in deps], "params": params, "outs": outs}
        stages[name] = {key: value for key, value in stage.items() if value}
        return out

    captions: list[Path | str] = [] if config.ingest.path is None else [config.ingest.path]
    if not config.ingest.has_location and (files := FETCHED.get(config.ingest.dataset)):
        captions = [add("fetch", f"fetch {files}", [], [], project.runtime.data / files)]
    corpus = add("ingest", "ingest", captions, ["ingest"], layout.corpus)
    exported = labels_to_export(project, [])
    judgements: list[Path | str] = []
    encodings: list[Path | str] = [corpus]
    tables: list[Path | str] = []
    # Only judged splits need encodings of every label; elsewhere those to be exported are enough.
    for label in config.sources if judged else exported:
        models: list[Path | str] = []
        for name in config.params(label).tuned_models():
            folder = TUNED[name][1](project)
            models.append(add(f"tune-{name}", f"tune {name}", [corpus], [f"tune.{name}"], folder))
        parameters, out = f"sources.{label}", layout.encoding(split, label)
        command = f"encode --label {label} --split {split}"
        encoding = add(f"encode-{label}", command, [corpus, *models], ["encode", parameters], out)
        encodings.append(encoding)
        if judged:
            out, figures = layout.judgement(split, label), layout.figures(split, label)
            command = f"judge --label {label} --split {split}"
            judgements.append(add(f"judge-{label}", command, [corpus, encoding], ["judge", parameters], out, figures))
            judgements.append(figures)
        if label in exported:
            out = layout.neighbours(split, "captions", label)
            command = f"neighbours --label {label} --within {split}"
            table = add(f"neighbours-{label}", command, [corpus, encoding], ["neighbours", parameters], out)
            tables.append(table)
            out, command = layout.lookup(split, label), f"export lookup --label {label} --split {split}"
            add(f"export-{label}", command, [corpus, encoding, table], ["export.lookup", parameters], out)
            if config.source(label).spec.kind == "vectors":
                out, command = layout.export(split, "faiss", label), f"export faiss --label {label} --split {split}"
                add(f"faiss-{label}", command, [corpus, encoding], ["export.faiss", parameters], out)
    built = [*encodings, *tables]
    if judged:
        report, more = layout.report(split), [layout.ranking(split)] if "eccv" in judged else []
        command = f"correlate --on {','.join(judged)}"
        add("correlate", command, [*encodings, *judgements], ["judge", "sources"], report, *more)
        built += [*judgements, report, *more]
    if judged or exported:
        add("report", "report", built, ["judge", "sources"], layout.page(split))
    return {"stages": stages}
