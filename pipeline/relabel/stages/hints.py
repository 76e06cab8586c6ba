"""Commands that messages advise: verb, label, split and dataset, and no other option of the running command."""

from __future__ import annotations

from pathlib import Path

from relabel.core.layout import EXPORTS, place_of

VERBS: dict[str, str] = {
    "corpus": "ingest",
    "word_vectors": "tune cbow",
    "sentence_encoder": "tune sbert",
    "fuse_model": "tune fuse",
    "cross_encoder": "tune bert_sts",
    "encoding": "encode",
    "neighbours": "neighbours",
    "judgement": "judge",
    "figures": "judge",
    "ranking": "correlate",
    "scores": "correlate",
    "report": "correlate",
    "page": "report",
    "lookup": "export lookup",
    "neighbour_ids": "export neighbours",
    "wds": "export wds",
    "plan": "export plan",
    **{kind: f"export {kind}" for kind in EXPORTS},
}
"""Kind of artefact to the command that makes it."""
_OPTIONS = {
    "neighbours": ("within", "of", "label"),
    "neighbour_ids": ("within", "of", "label"),
    "plan": ("split",),
    "report": ("split",),
}
_SPLITS = ("train", "val", "test", "all")


def command(verb: str, dataset: str | None = None, **options: object) -> str:
    """Return a command for a message."""
    words = ["relabel", verb]
    for name, value in (options | {"dataset": dataset}).items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return f"`{' '.join(words)}`"


def build_command(kind: str, folder: Path) -> str:
    """Return the command that makes the artefact in a folder."""
    place = place_of(folder)
    if place is None or place.kind != kind:
        return command(VERBS[kind])
    options = dict(zip(_OPTIONS.get(kind, ("split", "label")), place.names, strict=False))
    # The folder of a trial has another name than its split.
    if options.get("split") not in _SPLITS:
        options.pop("split", None)
    return command(VERBS[kind], place.layout.dataset, **options)
