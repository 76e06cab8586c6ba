"""Labels where batches are made: a collate that adds `relevance` and `same_image` to whatever a trainer collates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.lookup import Lookup
from relabel_train.lookup.tensors import TorchLookup


@dataclass(frozen=True)
class RelevanceCollate:
    """Collate B samples and add their (B, B) labels; for `DataLoader(collate_fn=...)` and HF's `data_collator`.

    Row i of `relevance` is the image of sample i, column j the caption of sample j; `same_image` marks the cells whose
    caption is of the image, by id.

    Attributes
    ----------
    lookup : Lookup
    collate : callable, optional
        The trainer's own; torch's `default_collate` where not given. A mapping gets the labels under their names,
        a tuple or list at its end.
    key : str, int or callable
        Where a sample keeps its caption id (a string, `coco:770337`) or corpus row (an int); a callable is given the
        sample.
    pooling : Pooling, optional
        The label's own where not given.
    keep : bool
        Leave the key in samples that are mappings; False hides it from a `collate` that takes only numbers.
    """

    lookup: Lookup
    collate: Callable[[list[Any]], Any] | None = None
    key: str | int | Callable[[Any], str | int] = "caption_id"
    pooling: Pooling | None = None
    keep: bool = True

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collate.

        Raises
        ------
        KeyError, IndexError
            If a caption is not covered; see Lookup.
        TypeError
            If the trainer's batch is neither a mapping nor a tuple or list.
        """
        names = [self._name(sample) for sample in samples]
        rows = self.lookup.rows_of(names) if names and isinstance(names[0], str) else names
        labels = TorchLookup(self.lookup)
        added = {"relevance": labels.block(rows, None, self.pooling), "same_image": labels.same_image(rows)}
        batch = self._collate()(self._seen(samples))
        if isinstance(batch, Mapping):
            for name, value in added.items():
                batch[name] = value  # type: ignore[index]  # a BatchEncoding stays one
            return batch
        if isinstance(batch, tuple | list):
            return (*batch, *added.values())
        raise TypeError(f"cannot add labels to a batch that is a {type(batch).__name__}; collate to a dict or tuple")

    def _name(self, sample: Any) -> Any:
        return self.key(sample) if callable(self.key) else sample[self.key]

    def _seen(self, samples: Sequence[Any]) -> list[Any]:
        if self.keep or callable(self.key):
            return list(samples)
        return [{k: v for k, v in s.items() if k != self.key} if isinstance(s, Mapping) else s for s in samples]

    def _collate(self) -> Callable[[list[Any]], Any]:
        if self.collate is not None:
            return self.collate
        from torch.utils.data import default_collate

        return default_collate
