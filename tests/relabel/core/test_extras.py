"""Contract: the requirement of a module names the extra of pyproject.toml that lists its distribution."""

from __future__ import annotations

import pytest

from relabel.core import extras
from relabel.core.extras import is_installed, missing_distributions, requirement_of

METADATA = [
    "numpy>=1.26",
    "pyyaml>=6",
    "gensim>=4.3; extra == 'dev'",
    "faiss-cpu>=1.8; extra == 'cpu'",
    "scikit-learn>=1.4; extra == 'pipeline'",
    "no-such-distribution; extra == 'pipeline'",
    'torch>=2.4; extra == "pipeline"',
    "torch>=2.4; extra == 'train'",
    "gensim>=4.3; python_version < '3.14' and extra == 'tune'",
]


@pytest.fixture(autouse=True)
def metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "requires", lambda name: METADATA)


@pytest.mark.parametrize(
    ("module", "requirement"),
    [
        ("numpy.linalg", "relabel-itr"),
        ("yaml", "relabel-itr"),
        ("faiss", "relabel-itr[cpu]"),
        ("sklearn.svm", "relabel-itr[pipeline]"),
        ("torch", "relabel-itr[pipeline]"),
        ("gensim.models", "relabel-itr[tune]"),
        ("huggingface_hub", "relabel-itr[pipeline]"),
    ],
)
def test_the_requirement_names_the_extra(module: str, requirement: str) -> None:
    assert requirement_of(module) == requirement


def test_missing_distributions_are_those_of_the_extra() -> None:
    assert missing_distributions("pipeline") == [
        name for name in ("scikit-learn", "no-such-distribution", "torch") if not is_installed(name)
    ]
    assert "no-such-distribution" in missing_distributions("pipeline")
