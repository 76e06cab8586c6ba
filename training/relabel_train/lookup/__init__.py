"""The lookup: a folder of memory-mapped arrays that answers relevance, same-image marks and neighbours for any rows."""

from relabel_train.batches.plan import Plan, open_plan
from relabel_train.lookup.collate import RelevanceCollate
from relabel_train.lookup.lookup import Lookup, open_lookup
from relabel_train.lookup.tensors import TorchLookup

__all__ = ["Lookup", "Plan", "RelevanceCollate", "TorchLookup", "open_lookup", "open_plan"]
