"""Parameter for word vectors, shared by several sources, and the search for the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError, MissingError
from relabel.datasets import locate
from relabel.sources.base import Paths, SourceParams
from relabel.sources.words.vectors import WordVectorsFile
from relabel.store.manifest import Manifest, open_artefact

TUNED = "word2vec"
"""Name of the word vectors trained by `relabel tune word2vec`, and of their folder in the data folder."""
VECTORS = (
    "Word vectors: glove (fetched by `relabel fetch glove`), word2vec (trained on the dataset by `relabel tune "
    "word2vec`), or a GloVe or word2vec text file: plain, .gz, .zip or FILE.zip:MEMBER."
)


class WordVectorParams(SourceParams):
    """Parameters of a source that uses word vectors."""

    paths: ClassVar[Paths] = {"vectors": {TUNED: f"{TUNED}/{{dataset}}", "glove": None}}
    vectors: str = Field(TUNED, description=VECTORS)

    @override
    def tuned_models(self) -> tuple[str, ...]:
        return ("word2vec",) if self.vectors == TUNED else ()

    @override
    def fetched(self) -> tuple[str, ...]:
        return ("glove",) if self.vectors == "glove" else ()

    def find_file(self, data: Path, manifest: Manifest | None = None) -> WordVectorsFile:
        """Find the file of word vectors. If a manifest is given, raise unless its encoding used the same file."""
        file = find_vectors(self.vectors, data)
        if manifest is not None and file.sha256() != manifest.config["vectors"]["sha256"]:
            message = "the encoding was made with other word vectors"
            raise CheckError(message, where=file.where, hint="Encode again.")
        return file

    def file_fingerprint(self, data: Path) -> dict[str, Any]:
        """Return the identity of the file: name, archive member and sha256."""
        file = self.find_file(data)
        return {"name": file.name, "member": file.member, "sha256": file.sha256()}


def find_vectors(vectors: str, data: Path) -> WordVectorsFile:
    """Find the file of word vectors. `vectors`: `glove`, a file, or a folder written by `relabel tune word2vec`."""
    if vectors == "glove":
        return WordVectorsFile.at(locate("glove", None, data))
    hint = "Run `relabel tune word2vec`, or set `vectors` to glove or to a file."
    if vectors == TUNED:  # a session replaces this name by the folder of its dataset
        raise MissingError("these word vectors need a dataset", where=vectors, hint=hint)
    folder = Path(vectors)
    if not folder.is_dir():
        return WordVectorsFile.at(vectors)
    try:
        manifest = open_artefact(folder, "word_vectors")
    except MissingError:
        raise MissingError("no word vectors in this folder", where=str(folder), hint=hint) from None
    return WordVectorsFile.at(folder / next(iter(manifest.files)), manifest.name)
