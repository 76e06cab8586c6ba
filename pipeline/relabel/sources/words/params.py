"""Parameter of sources that use word vectors, and the file that it names."""

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
"""Name of the word vectors that `relabel tune word2vec` trains, and of their folders in the data folder, by dataset."""
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
        """Find the file of word vectors. If a manifest is passed, it must be the file of that encoding."""
        file = find_vectors(self.vectors, data)
        if manifest is not None and file.sha256() != manifest.config["vectors"]["sha256"]:
            message = "these are not the word vectors that the encoding was made with"
            raise CheckError(message, where=file.where, todo="Encode again.")
        return file

    def file_fingerprint(self, data: Path) -> dict[str, Any]:
        """Return the identity of the file: its name, the member of an archive, and its sha256."""
        file = self.find_file(data)
        return {"name": file.name, "member": file.member, "sha256": file.sha256()}


def find_vectors(vectors: str, data: Path) -> WordVectorsFile:
    """Find the file that `vectors` names: `glove`, a file, or a folder that `relabel tune word2vec` wrote."""
    if vectors == "glove":
        return WordVectorsFile.at(locate("glove", None, data))
    todo = "Run `relabel tune word2vec`, or set `vectors` to glove or to a file."
    if vectors == TUNED:  # a session replaces the name by the folder of its dataset
        raise MissingError("no dataset is given for these word vectors", where=vectors, todo=todo)
    folder = Path(vectors)
    if not folder.is_dir():
        return WordVectorsFile.at(vectors)
    try:
        manifest = open_artefact(folder, "word_vectors")
    except MissingError:
        raise MissingError("no word vectors here", where=str(folder), todo=todo) from None
    return WordVectorsFile.at(folder / next(iter(manifest.files)), manifest.name)
