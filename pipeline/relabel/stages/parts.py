"""What labels are made of: never, in whatever roundabout way, of themselves."""

from __future__ import annotations

from relabel.config import Config
from relabel.errors import UsageError


def refuse_cycle(config: Config, label: str, above: tuple[str, ...] = ()) -> None:
    """Refuse a label that is made of itself.

    Raises
    ------
    UsageError
        With the way from the label back to it; or if it, or a part, is no label.
    """
    if label in above:
        way = " -> ".join((*above[above.index(label) :], label))
        raise UsageError(f"label {label} is made of itself: {way}", todo="Take it out of the parts of one of these.")
    for part in config.source(label).parts():
        refuse_cycle(config, part, (*above, label))
