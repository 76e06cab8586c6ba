"""Recipes and opening of encodings, together with the encodings of their components.

Components are the labels that a label combines or uses as a gate (`Source.input_labels`).
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
    """Return the recipe of an encoding. `parts`: identities of the encodings of its components, by label."""
    # If a component is rebuilt, the encoding becomes stale.
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
    """Open an encoding and its components for scoring.

    `find_source`, `find_encoding`: return the source of a label, and the folder and manifest of its encoding. `opened`:
    labels that are already open. The label and its components are added.
    """
    # A label may be a component of several others.
    if label not in opened:
        source, (folder, manifest) = find_source(label), find_encoding(label)
        parts: Mapping[str, Relevance] = {
            part: open_encoding(part, find_source, find_encoding, corpus, runtime, opened)
            for part in source.input_labels()
        }
        bounds = {part: find_source(part).spec.bounds for part in parts}
        opened[label] = source.open(Encoding(corpus, folder, manifest, runtime, parts, bounds))
    return opened[label]
