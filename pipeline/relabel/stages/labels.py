"""The labels of the parameters: which names are known, and which labels this machine can build."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from relabel.config import Config
from relabel.core.errors import MissingError
from relabel.datasets import locate
from relabel.stages.session import Session


def check_label_names(config: Config, labels: Iterable[str]) -> None:
    """Raise for an unknown label, whose name is a better message than what it lacks later."""
    for label in labels:
        config.params(label)


def available_labels(session: Session, labels: Iterable[str]) -> list[str]:
    """Return the labels that have what `relabel fetch` gets for them; the others are noted.

    Raises MissingError if none has.
    """
    available, missing = list[str](), list[MissingError]()
    for label in labels:
        try:
            for name in _fetched(session.config, label):
                locate(name, None, session.runtime.data)
            available.append(label)
        except MissingError as error:
            session.note_once(f"{label} is left out: {error}")
            missing.append(error)
    if missing and not available:
        raise missing[0]
    return available


def _fetched(config: Config, label: str) -> list[str]:
    """Return what `relabel fetch` gets for a label and those that it is composed of."""
    # A fuse without its model is reported when it is used.
    with suppress(MissingError):
        return [name for source in config.with_parts(label).values() for name in source.params.fetched()]
    return []
