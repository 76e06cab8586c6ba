"""The jars of SPICE's parser: pycocoevalcap brings all but CoreNLP, which is the user's to fetch (GPL-3.0)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from relabel.datasets import Content, load_manifest, locate
from relabel.datasets.content import check_file
from relabel.errors import CheckError, MissingError
from relabel.java import find_jar
from relabel.store.atomic import sha256_file

CORENLP = "RELABEL_CORENLP"
"""Names a folder that holds CoreNLP's two jars; else they are looked for as any other dataset."""
_SPICE = "spice/spice-1.0.jar"
_GRAPHS = "spice/lib/SceneGraphParser-1.0.jar"
_NOT_HERE = "the parser of spice needs CoreNLP 3.6.0, which is not here"
_FETCH = "Get it with `relabel fetch corenlp` (385 MB, GPL-3.0)."


def corenlp_jars(data: Path) -> list[Path]:
    """Find CoreNLP's code and models: in $RELABEL_CORENLP, `data/corenlp/`, pycocoevalcap's folder or the mirror.

    Raises
    ------
    MissingError
        If a jar is not there.
    CheckError
        If what is there is not CoreNLP 3.6.0, whole.
    """
    given = os.environ.get(CORENLP)
    files = load_manifest("corenlp").files
    if given:
        return [_given(Path(given) / file.name, file.contents) for file in files]
    found = []
    for file in files:
        try:
            found.append(locate("corenlp", file.name, data))
        except MissingError as error:
            raise MissingError(_NOT_HERE, where=error.where, todo=_FETCH) from error
        except CheckError as error:
            todo = f"Delete it: half a download, or another version. {_FETCH}"
            raise CheckError(error.what, where=error.where, todo=todo) from error
    return found


def class_path(data: Path) -> list[Path]:
    """List the jars that the parser runs with, in order; raises as `corenlp_jars`, and MissingError as `find_jar`."""
    spice = find_jar(_SPICE)
    beside = sorted((spice.parent / "lib").glob("*.jar"))  # CoreNLP may lie there too, of whatever version
    return [spice, *(jar for jar in beside if not jar.name.startswith("stanford-corenlp")), *corenlp_jars(data)]


def parser_files() -> dict[str, str]:
    """Name what a caption's tuples depend on beside its text: sha256 of the jars, by what they are.

    Those of CoreNLP are what the manifest says: they are checked where they are used.
    """
    corenlp = {file.name.removesuffix(".jar"): file.sha256 for file in load_manifest("corenlp").files}
    return {"spice": sha256_file(find_jar(_SPICE)), "scene_graphs": sha256_file(find_jar(_GRAPHS)), **corenlp}


def _given(path: Path, contents: Sequence[Content]) -> Path:
    if not path.is_file():
        raise MissingError(f"${CORENLP} names a folder without this file", where=str(path), todo=_FETCH)
    try:
        return check_file(path, contents)
    except CheckError as error:
        todo = f"Half a download, or another version. {_FETCH}"
        raise CheckError(error.what, where=error.where, todo=todo) from error
