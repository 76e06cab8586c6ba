"""Verified local files of the datasets in data_manifests/.

`fetch` puts a dataset into `data/DATASET/`, `locate` finds a file on this machine, `status` lists the state of every
file.
"""

from relabel.datasets.fetch import fetch
from relabel.datasets.registry import Content, load_manifest, locate, names, status

__all__ = ["Content", "fetch", "load_manifest", "locate", "names", "status"]
