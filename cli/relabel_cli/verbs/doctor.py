"""`relabel doctor`."""

from __future__ import annotations

from relabel_cli.bridge import verb
from relabel_cli.common import Common


def doctor(common: Common) -> None:
    """Look for Java, models, data, disk and memory; say what each gap costs."""
    from relabel.doctor import examine

    findings = examine(common.runtime(), common.labels)
    width = max(len(f.what) for f in findings)
    lines = [f"{'ok ' if f.fine else '-- '} {f.what:{width}}  {f.found}" for f in findings]
    for finding in findings:
        if not finding.fine:
            lines += ["", f"{finding.what}: {finding.cost}", f"  {finding.cure}"]
    common.show([f.__dict__ for f in findings], "\n".join(lines))


app = verb(doctor)
