"""The lookup: a folder of memory-mapped arrays that answers relevance, same-image marks and neighbours for any rows.

One module per kind of lookup (`vectors`, `cider`, `spice`, `fuse`), `format` for the files, `lookup` for the reader.
"""

from relabel_train.folder import LookupFileError
from relabel_train.lookup.device import DeviceLookup, RelevanceCollate, TorchLookup
from relabel_train.lookup.lookup import Lookup, open_lookup

__all__ = [
    "DeviceLookup",
    "Lookup",
    "LookupFileError",
    "RelevanceCollate",
    "TorchLookup",
    "open_lookup",
]
