"""Encodings of labels with those of their parts: the recipe of one, and its relevance.

Parts are the labels that a label is made of or gated by (`Source.input_labels`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.base import Encoding, Source
from relabel.sources.relevance import Relevance
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import Manifest, version_of
from relabel.store.workdir import Work


def encoding_recipe(
    label: str,
    source: Source[Any],
    corpus: Corpus,
    parts: Mapping[str, str | Callable[[], str]],
    config: Callable[[], dict[str, Any]],
    fill: Callable[[Work], None],
) -> Recipe:
    """Return the recipe of an encoding. `parts`: identities of the encodings of its parts, by label."""
    # A part that is built again makes this encoding stale.
    inputs: Inputs = {"corpus": corpus.digest, **{f"encoding {part}": identity for part, identity in parts.items()}}
    if (tokenizer := source.tokenizer()) is not None:
        inputs["tokens"] = f"{tokenizer} {version_of('tokens')}"
    return Recipe("encoding", label, config, inputs, fill)


def open_encoding(
    label: str,
    find_source: Callable[[str], Source[Any]],
    find_encoding: Callable[[str], tuple[Path, Manifest]],
    corpus: Corpus,
    runtime: Runtime,
    opened: dict[str, Relevance],
) -> Relevance:
    """Open an encoding for scoring.

    `find_source`, `find_encoding`: return the source of a label, and the folder and manifest of its encoding. `opened`:
    labels that are open already. The label and its parts are added.
    """
    # A label may be part of several others.
    if label not in opened:
        source, (folder, manifest) = find_source(label), find_encoding(label)
        parts: Mapping[str, Relevance] = {
            part: open_encoding(part, find_source, find_encoding, corpus, runtime, opened)
            for part in source.input_labels()
        }
        bounds = {part: find_source(part).spec.bounds for part in parts}
        opened[label] = source.open(Encoding(corpus, folder, manifest, runtime, parts, bounds))
    return opened[label]
