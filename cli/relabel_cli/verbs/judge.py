"""`relabel judge`."""

from __future__ import annotations

from typing import Annotated

from relabel import stages
from relabel.judge import JudgeParams
from relabel_cli.options import label_option, verb
from relabel_cli.shared_options import BUILD, SharedOptions


def judge(
    common: SharedOptions,
    label: Annotated[list[str], label_option("to judge", "all of params.yaml")] = [],
) -> None:
    """Score human-judged pairs with a source, and compare the scores with people's."""
    project = common.project()
    for name in label or project.config.sources:
        common.run(stages.judge(project, name))
        stages.figures(project, name).build()


app = verb(judge, BUILD, JudgeParams, "split", "judge")
