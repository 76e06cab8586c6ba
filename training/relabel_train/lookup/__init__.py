"""The lookup: a folder of memory-mapped arrays that answers relevance, same-image marks and neighbours for any rows.

One module per kind of lookup (`vectors`, `cider`, `spice`, `scores`, `fuse`), `format` for the files, `lookup` for the
reader.
"""

from relabel_train.files import LookupFileError
from relabel_train.lookup.lookup import Lookup, open_lookup
from relabel_train.lookup.relevance_collate import RelevanceCollate

__all__ = ["Lookup", "LookupFileError", "RelevanceCollate", "open_lookup"]
