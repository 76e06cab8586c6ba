"""Registry of the sources by name. The modules of a source are loaded when the source is used.

A source is a way of measuring the relevance of captions to the reference sets of images. It consists of three
classes:

- `SourceParams`: the parameters that a user sets in `params.yaml`;
- `Source`: its properties (`SourceSpec`), the parameters that are part of a fingerprint, and the steps of an encoding.
  The last step usually writes shards (`relabel.sources.shards`);
- `Relevance` (`relabel.sources.relevance`): an opened encoding that scores any reference sets and captions.

A score r(i, j) is the degree to which caption j (the candidate) describes the content of reference set i. Rows of a
matrix are reference sets (images), columns are captions.

A source is one file or folder and one line in `SOURCES`. docs/sources/new-source.md shows a complete example.

Required methods of a `Source` are `fingerprint_params`, `steps` and `open`. Required methods of a `Relevance` are
`pairs` and `query`. Every other capability is a method with a default, so callers do not depend on the type of source.
Override these methods to add a capability:

- finding exact neighbours: `Relevance.finder`, or give the reason why not in `SourceSpec.refused`;
- scoring blocks faster than pair by pair: `Relevance.block`;
- exporting lookups: `Relevance.write_lookup`, or give the reason why not;
- searching with faiss: kind "vectors", `Relevance.unit_vectors`;
- building on other labels: `Source.input_labels`, `Source.check_inputs`;
- reading tokens from the corpus: `Source.tokenizer`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relabel.core.errors import UsageError, choices

if TYPE_CHECKING:
    from relabel.sources.base import Source

SOURCES = {
    "same_image": ("relabel.sources.same_image", "SameImage"),
    "cbow": ("relabel.sources.cbow", "Cbow"),
    "cider": ("relabel.sources.cider", "Cider"),
    "meteor": ("relabel.sources.meteor", "Meteor"),
    "sbert": ("relabel.sources.sbert", "Sbert"),
    "spice": ("relabel.sources.spice", "Spice"),
    "wmd": ("relabel.sources.wmd", "Wmd"),
    "fuse": ("relabel.sources.fuse", "Fuse"),
    "precomputed": ("relabel.sources.precomputed", "Precomputed"),
    "scores": ("relabel.sources.scores", "ScoresSource"),
    "bert_sts": ("relabel.sources.bert_sts", "BertSts"),
}
"""Module and class of each source by name."""


def source_class(name: str) -> type[Source[Any]]:
    """Import the class of a source."""
    if name not in SOURCES:
        raise UsageError(f"no source {name!r}", hint=choices(name, SOURCES))
    module, attribute = SOURCES[name]
    imported: type[Source[Any]] = getattr(import_module(module), attribute)
    return imported
