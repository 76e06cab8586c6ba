"""`python -m experiments.proxy_features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from experiments.params import FILE_OPTION, ProxyFeaturesParams, load_experiments
from experiments.proxy_features import proxy_features, remaining_project
from relabel import stages
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
    remaining = remaining_project(project).config.ingest
    lines = [
        stages.status_line(built, manifest, job.out),
        f"{counts}; {facts['vectors']} vectors of {facts['width']} numbers each.",
        facts["stand_in"],
        f"The remaining captions are the dataset {remaining.dataset}: {remaining.path}.",
    ]
    common.show(facts, "\n".join(lines))


app = verb(command)
if __name__ == "__main__":
    main(lambda: app)
