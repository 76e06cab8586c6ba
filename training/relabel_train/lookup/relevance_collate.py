"""Collate functions that add labels to the batches of any trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.lookup import Lookup
from relabel_train.samplers import Missing


@dataclass(frozen=True)
class RelevanceCollate:
    """Collate B samples and add their (B, B) labels, for `DataLoader(collate_fn=...)` and HF's `data_collator`.

    Row i of `relevance` is the image of sample i, column j the caption of sample j. `same_image` marks, by id, the
    cells whose caption belongs to the image.

    Attributes
    ----------
    lookup : Lookup
    collate : callable, optional
        The trainer's collate function; torch's `default_collate` by default. A mapping gets the labels under their
        names, a tuple or list at its end.
    key : str, int or callable
        Key of a sample's caption id (a string, `coco:770337`, or its UTF-8 bytes, as h5py gives them) or corpus row (an
        int), or a function of the sample.
    pooling : Pooling, optional
        The label's default if omitted.
    keep : bool
        Keep the key in samples that are mappings; False hides it from a `collate` that accepts only numbers.
    missing : "raise" or "nan"
        Raise for captions without an encoding, or give them NaN.

    Examples
    --------
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> collate = RelevanceCollate(open_lookup(write_lookup("example")))
    >>> batch = collate([{"caption_id": "coco:11", "image": 0.5}, {"caption_id": "coco:12", "image": 0.7}])
    >>> sorted(batch), batch["same_image"].tolist()
    (['caption_id', 'image', 'relevance', 'same_image'], [[True, True], [True, True]])
    """

    lookup: Lookup
    collate: Callable[[list[Any]], Any] | None = None
    key: str | int | Callable[[Any], str | bytes | int] = "caption_id"
    pooling: Pooling | None = None
    keep: bool = True
    missing: Missing = "raise"

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collate samples and add `relevance` and `same_image`; raises as `Lookup.rows_of` and `Lookup.block` do.

        ValueError if there are no samples, or some have an id and others a row.
        """
        key = self.key
        # Before the trainer's collate, which may drop ids or stack them into tensors.
        try:
            names: list[Any] = [key(sample) if callable(key) else sample[key] for sample in samples]
        except (KeyError, IndexError, TypeError) as error:
            first, like = samples[0], self.lookup.caption_ids(self.lookup.rows[:1])[0]
            found = f"keys {', '.join(map(str, first))}" if isinstance(first, Mapping) else type(first).__name__
            todo = f"Give `key`, where a sample has its caption id, as in {like}"
            raise KeyError(f"no {key!r} in a sample of {found}. {todo}") from error
        by_id = {isinstance(name, str | bytes) for name in names}
        if len(by_id) != 1:
            kinds = ", ".join(sorted({type(name).__name__ for name in names})) or "none, since the batch is empty"
            raise ValueError(f"values of {key!r}: {kinds}. All samples need a caption id (str) or a corpus row (int)")
        rows = self.lookup.rows_of(names) if by_id == {True} else names
        relevance = self.lookup.block(rows, pooling=self.pooling, missing=self.missing)
        labels = {"relevance": relevance, "same_image": self.lookup.same_image(rows)}
        if not self.keep:
            samples = [{k: v for k, v in s.items() if k != key} if isinstance(s, Mapping) else s for s in samples]
        return collate_with_labels(self.collate, list(samples), labels)


def collate_with_labels(
    collate: Callable[[list[Any]], Any] | None, samples: list[Any], labels: Mapping[str, NDArray[Any]]
) -> Any:
    """Collate samples, by default as torch does, and add labels as tensors: by name, or at the end of a tuple."""
    import torch

    from relabel_train.tensors import sendable

    batch = (collate or torch.utils.data.default_collate)(samples)
    added = {name: sendable(torch.from_numpy(array)) for name, array in labels.items()}
    if isinstance(batch, Mapping):
        for name, value in added.items():
            batch[name] = value  # type: ignore[index]  # a BatchEncoding stays one
        return batch
    if isinstance(batch, tuple | list):
        return (*batch, *added.values())
    raise TypeError(f"cannot add labels to a batch that is a {type(batch).__name__}; collate to a dict or tuple")
