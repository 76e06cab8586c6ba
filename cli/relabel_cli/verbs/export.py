"""`relabel export`: one file a command."""

from __future__ import annotations

from relabel_cli.bridge import group
from relabel_cli.verbs import export_lookup, export_plan


def export() -> None:
    """Write what training code reads: a lookup, or a batch plan."""


app = group(export, lookup=export_lookup.app, plan=export_plan.app)
