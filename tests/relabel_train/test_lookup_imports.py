"""Contract: to read a lookup takes numpy alone, and torch only where tensors are asked for."""

from __future__ import annotations

import subprocess
import sys

from relabel.stages import Project
from relabel_train.lookup import open_lookup

CODE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"relabel", "pyarrow", "scipy", "numba", "faiss", "torch", "pandas", "dask"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
from relabel_train.lookup import TorchLookup, open_lookup
lookup = open_lookup(sys.argv[1], verify=True)
print(lookup.block([1, 2, 3]).tolist(), lookup.neighbours([4], 2)[0].tolist(), lookup.caption_ids([5]))
try:
    TorchLookup(lookup).block([1])
except ImportError as error:
    print(error)
"""


def test_numpy_is_enough(small_project: Project) -> None:
    for label in ("cbow", "cider"):
        folder = small_project.layout.lookup("all", label)
        run = subprocess.run([sys.executable, "-X", "utf8", "-c", CODE, str(folder)], capture_output=True, check=False)
        assert run.returncode == 0, run.stderr.decode()
        lookup = open_lookup(folder)
        near, names = lookup.neighbours([4], 2)[0].tolist(), lookup.caption_ids([5])
        expected = f"{lookup.block([1, 2, 3]).tolist()} {near} {names}\ntorch is blocked\n"
        assert run.stdout.decode() == expected
