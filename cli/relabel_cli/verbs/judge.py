"""`relabel judge`."""

from __future__ import annotations

from relabel.judge import JudgeParams
from relabel_cli.options import Overrides, label_option, verb
from relabel_cli.shared_options import BUILD, SharedOptions


def judge(
    common: SharedOptions,
    label: list[str] = label_option("to judge", default="all of params.yaml"),
) -> None:
    """Score human-judged pairs with a source, and compare the scores with people's."""
    from relabel import stages

    project = common.project()
    for name in label or project.config.sources:
        common.run(stages.judge(project, name))
        stages.figures(project, name).build()


app = verb(judge, BUILD, Overrides(JudgeParams, "split", "judge"))
