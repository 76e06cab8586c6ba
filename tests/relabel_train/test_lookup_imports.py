"""Contract: reading a lookup needs numpy only; torch is imported for tensors only."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from relabel.stages import Project
from relabel_train.lookup import open_lookup

CODE = """
import json, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"relabel", "pyarrow", "scipy", "numba", "faiss", "torch", "pandas", "dask"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
from relabel_train.lookup import RelevanceCollate, open_lookup
lookup = open_lookup(sys.argv[1], verify=True)
block, near, names = lookup.block([1, 2, 3]), lookup.neighbours([4], 2)[0], lookup.caption_ids([5])
print(json.dumps([block.tolist(), near.tolist(), list(names)]))
try:
    RelevanceCollate(lookup)([{"caption_id": names[0]}])
except ImportError as error:
    print(error)
"""


def test_numpy_is_enough(small_project: Project) -> None:
    for label in ("cbow", "cider"):
        folder = small_project.folder("exports", "all", "lookup", label)
        run = subprocess.run([sys.executable, "-X", "utf8", "-c", CODE, str(folder)], capture_output=True, check=False)
        assert run.returncode == 0, run.stderr.decode()
        lookup = open_lookup(folder)
        block_line, blocked = run.stdout.decode().splitlines()
        block, near, names = json.loads(block_line)
        np.testing.assert_allclose(
            block, lookup.block([1, 2, 3]), atol=1e-6
        )  # computed by numpy there, by torch in this process
        assert [near, names] == [lookup.neighbours([4], 2)[0].tolist(), list(lookup.caption_ids([5]))]
        assert blocked == "torch is blocked"
