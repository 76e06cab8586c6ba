"""Collate functions that add labels to the batches of any trainer."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.lookup import Lookup
from relabel_train.samplers import Missing
from relabel_train.scoring.calibration import Scale
from relabel_train.scoring.references import Pooling

Key = str | int | Callable[[Any], Any]
"""Key of a sample, or a function of it."""


@dataclass(frozen=True)
class RelevanceCollate:
    """Collate B samples and add their (B, B) labels, for `DataLoader(collate_fn=...)` and HF's `data_collator`.

    Row i of `relevance` is the image of sample i, column j the caption of sample j. `same_image` marks the cells in
    which the caption belongs to the image, by id.

    Attributes
    ----------
    lookup : Lookup
    collate : callable, optional
        The trainer's collate function; torch's `default_collate` by default. A mapping gets the labels under their
        names, a tuple or list at its end.
    caption_id : str, int or callable
        Key of a sample's caption id, or a function of the sample. An id is a str, `coco:770337`, its UTF-8 bytes, as
        h5py gives them, or an int. Not read if `image_id` or `row` is given.
    image_id, position, text : str, int or callable, optional
        Keys of a sample's image id, and of the position of its caption among those of the image or of its text. Ids may
        lack the prefix of the dataset.
    row : str, int or callable, optional
        Key of a sample's corpus row, an int, instead of ids.
    pooling : Pooling, optional
        The label's default if omitted.
    keep : bool
        Keep the ids in samples that are mappings; False hides them from a `collate` that accepts only numbers.
    missing : "raise" or "nan"
        Raise for captions without an encoding, or give them NaN.
    scale : "relevance", "probability" or "expected"
        "probability": the probability that people score the caption 4 or more of 5 for the image; "expected": their
        expected score, divided by 5. Both are 0 to 1 for every label, by the curve of the lookup, which was fitted to
        judged pairs of images and captions. Cells of `same_image` have the value of an image's own captions.
    ignore : float, optional
        Adds the block `ignore`, (B, B) bool: pairs of a caption and another image that people score 4 or more of 5 with
        at least this probability, 0 to 1, by the curve of the lookup. Losses with negatives take it as ``ignore=``.

    Examples
    --------
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> collate = RelevanceCollate(open_lookup(write_lookup("example")))
    >>> batch = collate([{"caption_id": "coco:11", "image": 0.5}, {"caption_id": "coco:12", "image": 0.7}])
    >>> sorted(batch), batch["same_image"].tolist()
    (['caption_id', 'image', 'relevance', 'same_image'], [[True, True], [True, True]])
    >>> collate = RelevanceCollate(collate.lookup, image_id="image", text="caption")
    >>> collate([{"image": "1", "caption": "a dog runs"}])["relevance"]
    tensor([[1.]])
    >>> collate = RelevanceCollate(collate.lookup, scale="probability")
    >>> collate([{"caption_id": "coco:11"}, {"caption_id": "coco:31"}])["relevance"]
    tensor([[0.9900, 0.4376],
            [0.2240, 0.9900]])
    >>> collate = RelevanceCollate(collate.lookup, ignore=0.4)
    >>> collate([{"caption_id": "coco:11"}, {"caption_id": "coco:31"}])["ignore"]  # of the loss, as `ignore=`
    tensor([[False,  True],
            [False, False]])
    """

    lookup: Lookup
    collate: Callable[[list[Any]], Any] | None = None
    caption_id: Key = "caption_id"
    image_id: Key | None = None
    position: Key | None = None
    text: Key | None = None
    row: Key | None = None
    pooling: Pooling | None = None
    keep: bool = True
    missing: Missing = "raise"
    scale: Scale = "relevance"
    ignore: float | None = None

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise ValueError(f"no scale {self.scale!r}. Use one of {', '.join(get_args(Scale))}.")
        if self.missing not in get_args(Missing):
            raise ValueError(f"missing is {self.missing!r}. Use one of {', '.join(get_args(Missing))}.")
        if isinstance(self.ignore, bool) or (self.ignore is not None and not 0 <= self.ignore <= 1):
            raise ValueError(f"ignore is {self.ignore}, not a probability from 0 to 1")
        if (self.scale != "relevance" or self.ignore is not None) and self.lookup.about.curve is None:
            reader = f"scale={self.scale!r}" if self.ignore is None else f"ignore={self.ignore}"
            hint = "On COCO, `relabel correlate --cxc --split val` makes its curve; then export the lookup again."
            raise ValueError(f"{self.lookup.about.label}: the lookup has no curve for {reader}. {hint}")
        if (self.image_id is None) != (self.position is None and self.text is None):
            raise ValueError("image_id needs position or text, the keys that tell its captions apart, and the reverse")
        if self.row is not None and self.image_id is not None:
            raise ValueError("pass row or image_id, not both")

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collate samples and add `relevance`, `same_image` and, with `ignore`, the mask of that name.

        Raises as `Lookup.rows_of` and `Lookup.block` do. ValueError also if there are no samples.
        """
        rows = self._rows(samples)
        relevance = self.lookup.block(rows, pooling=self.pooling, missing=self.missing)
        same_image, curve = self.lookup.same_image(rows), self.lookup.about.curve
        labels = {"relevance": relevance, "same_image": same_image}
        if curve is not None and self.scale != "relevance":
            labels["relevance"] = curve.evaluate(relevance, self.scale, same_image).astype(np.float32)
        if curve is not None and self.ignore is not None:
            labels["ignore"] = ~same_image & (curve.evaluate(relevance, "probability") >= self.ignore)
        if not self.keep:
            keys = (self.caption_id, self.image_id, self.position, self.text, self.row)
            samples = [{k: v for k, v in s.items() if k not in keys} if isinstance(s, Mapping) else s for s in samples]
        return collate_with_labels(self.collate, list(samples), labels)

    def _rows(self, samples: Sequence[Any]) -> Any:
        """Return the rows of samples, before the trainer's collate drops ids or stacks them into tensors."""
        if not samples:
            raise ValueError("the batch is empty")
        if self.image_id is not None:
            captions = self._values(samples, self.text if self.position is None else self.position)
            return self.lookup.rows_of(zip(self._values(samples, self.image_id), captions, strict=True))
        if self.row is not None:
            rows = self._values(samples, self.row)
            if wrong := [row for row in rows if isinstance(row, bool) or not hasattr(row, "__index__")]:
                raise TypeError(f"rows are integers, found {type(wrong[0]).__name__}")
            return [operator.index(row) for row in rows]
        return self.lookup.rows_of(self._values(samples, self.caption_id))

    def _values(self, samples: Sequence[Any], key: Any) -> list[Any]:
        try:
            return [key(sample) if callable(key) else sample[key] for sample in samples]
        except (KeyError, IndexError, TypeError) as error:
            first, like = samples[0], self.lookup.caption_ids(self.lookup.rows[:1])[0]
            found = f"keys {', '.join(map(str, first))}" if isinstance(first, Mapping) else type(first).__name__
            hint = f"Give caption_id=KEY, with ids like {like}, or image_id=KEY with position=KEY or text=KEY"
            raise KeyError(f"no {key!r} in a sample of {found}. {hint}") from error


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
