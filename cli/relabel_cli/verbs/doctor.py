"""`relabel doctor`."""

from __future__ import annotations

from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import verb


def doctor(common: GlobalOptions) -> None:
    """Look for Java, models, data, disk and memory; say what each gap costs."""
    from relabel.stages.doctor import run_checks

    findings = run_checks(common.runtime(), common.labels)
    width = max(len(f.what) for f in findings)
    lines = [f"{'ok ' if f.fine else '-- '} {f.what:{width}}  {f.found}" for f in findings]
    for finding in findings:
        if not finding.fine:
            lines += ["", f"{finding.what}: {finding.cost}", f"  {finding.fix}"]
    common.show([f.__dict__ for f in findings], "\n".join(lines))


app = verb(doctor)
