"""data_manifests/ to verified local files.

`fetch` puts a dataset into `data/DATASET/`; `locate` finds a file where it already is; `status` says what is where.
"""

from relabel.datasets.fetch import fetch
from relabel.datasets.manifest import Content, DataFile, Manifest, load_manifest, names
from relabel.datasets.places import locate
from relabel.datasets.status import FileStatus, State, status

__all__ = [
    "Content",
    "DataFile",
    "FileStatus",
    "Manifest",
    "State",
    "fetch",
    "load_manifest",
    "locate",
    "names",
    "status",
]
