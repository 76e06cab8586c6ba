"""Extras of this package, read from the metadata of its installation."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

PACKAGE = "relabel-itr"
_DISTRIBUTIONS = {"faiss": "faiss-cpu", "jpype": "jpype1", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Distribution of each module whose name differs from it."""


def requirement_of(module: str) -> str:
    """Return the requirement that installs a module: this package, with the first extra that lists the module.

    Modules that no extra lists are dependencies of those in `pipeline`.

    Examples
    --------
    >>> from relabel.core.extras import requirement_of
    >>> requirement_of("numpy"), requirement_of("gensim.models"), requirement_of("transformers")
    ('relabel-itr', 'relabel-itr[tune]', 'relabel-itr[pipeline]')
    """
    # Distributions are compared in lower case and with hyphens, as packaging normalises their names.
    name = module.partition(".")[0].lower()
    name = _DISTRIBUTIONS.get(name, name.replace("_", "-"))
    # The extras of developers list modules of other extras again.
    extras = [extra for distribution, extra in _requirements() if distribution == name and extra not in ("dev", "docs")]
    return f"{PACKAGE}[{extras[0]}]" if extras and extras[0] else PACKAGE if extras else f"{PACKAGE}[pipeline]"


def missing_distributions(extra: str) -> list[str]:
    """Return the distributions of an extra that are not installed.

    Examples
    --------
    >>> from relabel.core.extras import missing_distributions
    >>> missing_distributions("no such extra")
    []
    """
    return [name for name, of in _requirements() if of == extra and not is_installed(name)]


def is_installed(distribution: str) -> bool:
    """Return whether a distribution is installed, in any version.

    Examples
    --------
    >>> from relabel.core.extras import is_installed
    >>> is_installed("numpy"), is_installed("no-such-distribution")
    (True, False)
    """
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _requirements() -> list[tuple[str, str]]:
    """Return each required distribution, in lower case, with its extra; the extra is empty for main dependencies."""
    requirements = []
    for text in requires(PACKAGE) or []:
        # A requirement of an extra is `NAME>=VERSION; extra == "EXTRA"`, in quotes of either kind.
        specifier, _, marker = text.partition(";")
        name, extra = re.match(r"[\w.-]+", specifier), re.search(r"extra == .([\w-]+)", marker)
        assert name is not None, text
        requirements.append((name[0].lower(), extra[1] if extra else ""))
    return requirements
