"""`python -m experiments.proxy_features`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from experiments.params import FILE_OPTION, load_experiments
from experiments.proxy_features import PROXY, proxy_features
from relabel_cli.main import main
from relabel_cli.options import BUILD, SharedOptions, verb


def command(common: SharedOptions, experiments: Annotated[Path | None, FILE_OPTION] = None) -> None:
    """Write token vectors of one caption per image, which is held out, for trainings without images."""
    session = common.session()
    job = proxy_features(session, load_experiments(experiments).proxy_features)
    common.show(job.run()[0].metadata, PROXY)


app = verb(command, BUILD)
if __name__ == "__main__":
    main(lambda: app)
