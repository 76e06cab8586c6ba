"""Contract: the scores that the jar's command line computes by parsing captions equal the counts of its recorded
tuples.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import RelabelError
from relabel.core.java import find_java, java_version
from relabel.core.runtime import default_data
from relabel.sources.spice.encode import collapsed
from relabel.sources.spice.parser import class_path
from relabel.sources.spice.relevance import SceneGraphRelevance

NASHORN = "RELABEL_NASHORN"
"""Names a folder that holds nashorn-core-15.4.jar and the ASM jars it needs, at any depth: `-out` needs a JavaScript
engine, which Java lost in 15."""
PAIRS = 8


def scripting_java() -> Path:
    """Return a Java with the modules that Nashorn needs; the runtime of a wheel may lack `jdk.dynalink`."""
    for java in (str(find_java()), shutil.which("java")):
        listed = [java, "--list-modules"] if java else ["true"]
        if "jdk.dynalink" in subprocess.run(listed, capture_output=True, text=True, check=False).stdout:
            return Path(str(java))
    pytest.skip("no Java on this machine has the module jdk.dynalink, which Nashorn needs")


@pytest.fixture
def jars() -> list[Path]:
    try:
        jar_paths = class_path(default_data())
        version = java_version(scripting_java())
    except RelabelError as error:
        pytest.skip(str(error))
    if "1.8" in version or any(f" {v}." in version for v in range(9, 15)):
        return jar_paths
    folder = os.environ.get(NASHORN)
    scripts = sorted(Path(folder).rglob("*.jar")) if folder else []
    if not any("nashorn" in jar.name for jar in scripts):
        pytest.skip(f"{NASHORN} names no folder with org.openjdk.nashorn:nashorn-core:15.4")
    return [*jar_paths, *scripts]


@pytest.mark.java
@pytest.mark.slow
def test_the_jars_command_line_agrees(
    jars: list[Path], coco: Callable[[str], SceneGraphRelevance], tmp_path: Path
) -> None:
    relevance = coco("raw")
    corpus, rng = relevance.corpus, np.random.default_rng(0)
    images = rng.integers(0, len(corpus.image_ids), PAIRS)
    references = corpus.references(images)
    captions = np.array([references[i][1] if i % 2 else rng.integers(0, len(corpus)) for i in range(PAIRS)], np.int32)
    texts = [collapsed(text) for text in corpus.texts]
    pairs = [
        {"image_id": i, "test": texts[caption], "refs": [texts[row] for row in references[i]]}
        for i, caption in enumerate(captions.tolist())
    ]
    (tmp_path / "in.json").write_text(json.dumps(pairs))
    path = os.pathsep.join(map(str, jars))
    options = ["-out", str(tmp_path / "out.json"), "-subset", "-silent", "-threads", "1"]
    command = [
        str(scripting_java()),
        "-Xmx4G",
        "-cp",
        path,
        "edu.anu.spice.SpiceScorer",
        str(tmp_path / "in.json"),
        *options,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads((tmp_path / "out.json").read_text())
    counted = relevance.counts(references, captions)
    scores = relevance.pairs(references, captions)
    for i, item in enumerate(theirs):
        assert item["image_id"] == i
        for k, kind in enumerate(("Object", "Attribute", "Relation")):
            matched, candidate, reference = counted[i, k].tolist()
            cell = item["scores"][kind]
            assert [cell["tp"], cell["fp"], cell["fn"]] == [matched, candidate - matched, reference - matched]
        assert item["scores"]["All"]["f"] == pytest.approx(scores[i], abs=1e-9)
