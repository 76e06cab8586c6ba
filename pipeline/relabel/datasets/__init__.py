"""Verified local files of the datasets in data_manifests/.

`fetch` downloads or copies a dataset to `data/DATASET/`, `locate` finds a file on this machine, and `status` lists the
state of every file.
"""

from relabel.datasets.fetch import fetch
from relabel.datasets.registry import Content, load_manifest, locate, names, status

__all__ = ["Content", "fetch", "load_manifest", "locate", "names", "status"]
