"""`relabel doctor`."""

from __future__ import annotations

from dataclasses import asdict

from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import verb


def doctor(common: GlobalOptions) -> None:
    """Check Java, models, data, disk and memory; show the cost of each gap and its fix."""
    from relabel.stages.doctor import report, run_checks
    from relabel_cli.output import terminal_width

    groups = run_checks(common.runtime(), common.labels)
    results = [{"group": group} | asdict(check) for group, checks in groups.items() for check in checks]
    common.show(results, report(groups, terminal_width()))


app = verb(doctor)
