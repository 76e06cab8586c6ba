"""init: writes the parameter file of a new project, and optionally DVC stages and examples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from relabel.core.errors import MissingError, UsageError
from relabel.core.parameters import check_name
from relabel.stages.ingest import FETCHED
from relabel.store.files import write_text

PARAMS, STAGES, EXAMPLES = "params.yaml", "dvc.yaml", "examples"


def init(
    folder: Path, dataset: str = "coco", path: Path | None = None, dvc: bool = False, examples: bool = False
) -> list[Path]:
    """Write the parameter file of a project; return the files and folders that were written.

    `folder`: folder of the project. `dataset`: name of the corpus. `path`: captions of the corpus; by default those of
    `relabel fetch`. `dvc`: True to write `dvc.yaml`, with one stage per verb. `examples`: True to copy the examples of
    training loops.
    """
    check_name("dataset", dataset)
    paths = [folder / PARAMS, *([folder / STAGES] if dvc else []), *([folder / EXAMPLES] if examples else [])]
    # Check all names before writing the first file.
    if existing := [str(p) for p in paths if p.exists() or p.is_symlink()]:
        hint = "Remove it, or run `relabel init` in another folder."
        raise UsageError(f"{', '.join(existing)} already exists", hint=hint)
    write_text(folder / PARAMS, _params(dataset, path))
    if dvc:
        write_text(folder / STAGES, _stages(dataset, path))
    if examples:
        shutil.copytree(_template(EXAMPLES), folder / EXAMPLES)
    return paths


def _params(dataset: str, path: Path | None) -> str:
    """Adapt the parameter file of the repository to the captions of a dataset."""
    lines = f"  dataset: {dataset}\n"
    if path is not None:
        # A JSON string is valid YAML for any characters in the path.
        lines += f"  path: {json.dumps(str(path))}\n"
    elif dataset not in FETCHED:
        lines += "  # path: captions.csv # your captions, or use `relabel ingest --path FILE`\n"
    sections = _template(PARAMS).read_text(encoding="utf-8").replace("  dataset: coco\n", lines, 1).split("\n\n")
    # Only captions of the benchmarks have human scores for judging and tuning.
    unused = () if dataset in FETCHED else ("tune:", "judge:")
    return "\n\n".join(section for section in sections if not section.startswith(unused))


def _stages(dataset: str, path: Path | None) -> str:
    """Return the stages of the repository that apply to a dataset, without files of the checkout."""
    body = yaml.safe_load(_template(STAGES).read_text(encoding="utf-8"))
    stages = body["stages"]
    if dataset != "coco":
        # Only COCO's captions have human judgements, and the splits of others are unknown before ingestion.
        served = next(var for var in body["vars"] if "served" in var)
        body = {"vars": [{"train": "all", "judged": "all"}, served], "stages": stages}
        for name in ("fetch", "tune", "correlate"):
            del stages[name]
        for name in ("encode", "neighbours", "export"):
            stages[name]["cmd"] = [command for command in stages[name]["cmd"] if "${train}" in command]
        stages["report"] |= {"cmd": "relabel report --split all", "params": ["sources"]}
        if dataset in FETCHED:
            stages["ingest"]["cmd"] = [f"relabel fetch {FETCHED[dataset]}", "relabel ingest"]
    outputs = {place for stage in stages.values() for out in stage["outs"] for place in out}
    for stage in stages.values():
        stage["deps"] = [dep for dep in stage["deps"] if dep in outputs]
    stages["ingest"]["deps"] += [] if path is None else [str(path)]
    return "# `dvc repro`: the stages of `relabel run`, with DVC's cache.\n" + yaml.safe_dump(body, sort_keys=False)


def _template(name: str) -> Path:
    """Return the path of a file or folder of the installed package, or of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "templates", package.parents[1]):
        if (folder / name).exists():
            return folder / name
    raise MissingError(f"{name} is missing", where=str(package), hint="Install relabel-itr again.")
