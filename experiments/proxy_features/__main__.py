"""`python -m experiments.proxy_features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from experiments.params import FILE_OPTION, ProxyFeaturesParams, load_experiments
from experiments.proxy_features import proxy_features, remaining_project
from relabel import stages
from relabel.stages import Project
from relabel_cli.global_options import GlobalOptions
from relabel_cli.main import main
from relabel_cli.options import Overrides, verb


def command(
    options: Annotated[dict[str, Any], Overrides(ProxyFeaturesParams, "proxy_features")],
    common: GlobalOptions,
    experiments: Annotated[Path | None, FILE_OPTION] = None,
) -> None:
    """Write token vectors of one caption per image, which is held out, for trainings without images."""
    project = common.project()
    job = proxy_features(project, load_experiments(experiments, options))
    manifest, built = job.run()
    facts = manifest.facts
    counts = ", ".join(f"{n:,} images of {split}" for split, n in facts["images"].items())
    remaining = remaining_project(project)
    lines = [
        stages.status_line(built, manifest, job.out),
        f"{counts}; {facts['vectors']} vectors of {facts['width']} numbers each.",
        facts["stand_in"],
        f"The remaining captions are the dataset {remaining.config.ingest.dataset}: {remaining.config.ingest.path}.",
        "Next:",
        *next_commands(remaining, job.out),
    ]
    common.show(facts, "\n".join(lines))


def next_commands(remaining: Project, features: Path, label: str = "sbert") -> list[str]:
    """Return the commands that label the remaining captions, train on the features and evaluate.

    Parameters
    ----------
    remaining : Project
        The project of the captions that are not held out.
    features : Path
        Folder of the proxy features.
    label : str
        Label to train with.
    """
    ingest = remaining.config.ingest
    dataset, tokenizer = f"--dataset {ingest.dataset}", f" --tokenizer {ingest.tokenizer}"
    return [
        f"  relabel ingest {dataset} --namespace {ingest.prefix} --format parquet --path {ingest.path}{tokenizer}",
        f"  relabel encode {dataset} --label {label} --split all",
        f"  relabel export lookup {dataset} --label {label} --split all",
        *fit_commands(remaining, features, label, "--loss bcls", "runs/bcls"),
    ]


def fit_commands(remaining: Project, features: Path, label: str, losses: str, run: str) -> list[str]:
    """Return the commands that train on the features with the lookup of a label, and evaluate.

    Parameters
    ----------
    remaining, features, label
        See `next_commands`.
    losses : str
        Options that name the losses.
    run : str
        Folder of the training.
    """
    layout = remaining.layout
    data = f"--data {features} --captions {layout.corpus} --labels {layout.lookup('all', label)}"
    return [f"  relabel fit {data} {losses} --out {run}", f"  relabel eval --run {run} {data}"]


app = verb(command)
if __name__ == "__main__":
    main(lambda: app)
