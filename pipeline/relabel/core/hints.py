"""Next steps in messages: commands with the options of the running command, and names that resemble a mistyped one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_ACCEPTED = {"fetch": ("--data",), "doctor": ("--data",), "verify": ("--data", "--labels")}
"""Verb to the repeated options that concern it; all of them for any other verb."""
_MAX_NAMES = 40  # names that a message lists

_options: tuple[tuple[str, str], ...] = ()


def repeat_options(options: Sequence[tuple[str, str]]) -> None:
    """Set the options that `command` appends to every command, as pairs of option and value.

    The options are those of this process, since a process works on one project at a time.
    """
    global _options
    _options = tuple(options)


def repeated_options() -> tuple[tuple[str, str], ...]:
    """Return the options that `command` appends, for another process that works on the same project."""
    return _options


def command(*words: object, **overrides: object) -> str:
    """Return a command of relabel for a message, with the options of the running command that it needs as well.

    Parameters
    ----------
    *words
        Verb and arguments. An option among them is not repeated.
    **overrides
        Values of repeated options by name, such as ``dataset="mine"``; None leaves an option out.

    Examples
    --------
    >>> from relabel.core.hints import command, repeat_options
    >>> repeat_options([("--dataset", "mine"), ("--data", "my data")])
    >>> command("encode", "--label", "sbert")
    "`relabel encode --label sbert --dataset mine --data 'my data'`"
    >>> command("fetch", "glove")
    "`relabel fetch glove --data 'my data'`"
    >>> command("ingest", dataset=None, labels="out")
    "`relabel ingest --data 'my data' --labels out`"
    >>> repeat_options([])
    """
    values = {f"--{name}": value for name, value in overrides.items()}
    options = [pair for pair in _options if pair[0] not in values]
    options += [(option, str(value)) for option, value in values.items() if value is not None]
    texts = [str(word) for word in words]
    # A verb refuses an option that it does not have, so the command of the message would fail.
    accepted = _ACCEPTED.get(texts[0])
    for option, value in options:
        if option not in words and (accepted is None or option in accepted):
            texts += [option, value]
    return f"`relabel {shlex.join(texts)}`"


def choices(name: str, names: Iterable[str]) -> str:
    """Return the advice for a name that does not exist: the names that resemble it, and all names.

    Examples
    --------
    >>> from relabel.core.hints import choices
    >>> choices("sbrt", ["cider", "sbert"])
    'Did you mean sbert? There are cider, sbert.'
    >>> choices("x", ["test"])
    'There is test.'
    """
    # A table may have two columns of one name, which is listed once.
    existing = list(dict.fromkeys(names))
    if not existing:
        return "There are none."
    close = get_close_matches(name.lower(), existing)
    question = f"Did you mean {' or '.join(close)}? " if close else ""
    more = f", and {len(existing) - _MAX_NAMES:,} more" if len(existing) > _MAX_NAMES else ""
    return f"{question}There {'is' if len(existing) == 1 else 'are'} {', '.join(existing[:_MAX_NAMES])}{more}."
