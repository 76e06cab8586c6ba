"""`relabel doctor`."""

from __future__ import annotations

from dataclasses import asdict

from relabel.stages.doctor import report, run_checks
from relabel_cli.options import SharedOptions, verb


def doctor(common: SharedOptions) -> None:
    """Check Java, libraries and data; show what is missing, its effect and the fix."""
    checks = run_checks(common.runtime())
    common.show([asdict(check) for check in checks], report(checks))


app = verb(doctor, ("data", "as_json"))
