"""Typical bytes and seconds of a source's artefacts, for a dry run without captions to measure."""

from __future__ import annotations

from dataclasses import dataclass

COCO_CAPTIONS = 616_767
"""Captions of COCO, on which the costs were measured."""


@dataclass(frozen=True)
class TypicalCost:
    """Approximate cost of a source's artefacts with default parameters, measured on COCO with 2 CPU cores.

    Attributes
    ----------
    encode_bytes, encode_seconds : float
        Cost of the encoding per caption.
    export_bytes, export_seconds : float or None
        Cost of a lookup per caption, without the bytes of ids and neighbours; None if it was not measured.
    neighbours_seconds : float or None
        Seconds of the exact top 100 of all captions of COCO; None if it was not measured.

    Examples
    --------
    >>> from relabel.sources.typical_cost import TypicalCost
    >>> cost = TypicalCost(encode_bytes=100, encode_seconds=0.01)
    >>> cost.estimate("encode", captions=2_000, k=100)
    (200000, 20.0)
    """

    encode_bytes: float
    encode_seconds: float
    export_bytes: float | None = None
    export_seconds: float | None = None
    neighbours_seconds: float | None = None

    def estimate(self, stage: str, captions: int, k: int) -> tuple[int, float] | None:
        """Estimate the bytes and seconds of an artefact.

        Parameters
        ----------
        stage : str
            "encode", "neighbours" or "export".
        captions : int
        k : int
            Neighbours per caption.

        Returns
        -------
        (int, float) or None
            None if the cost of the stage was not measured.
        """
        # A neighbour takes a row number and a score of 4 bytes each.
        lists = 8 * min(k, captions - 1)
        if stage == "encode":
            return round(captions * self.encode_bytes), captions * self.encode_seconds
        if stage == "neighbours" and self.neighbours_seconds is not None:
            # 70 bytes per caption are its digests. The exponent was fitted by eye to sbert and cider on two datasets
            # (full_run_coco.json and full_run_flickr30k.json in benchmarks/results), and is a guess for other sizes.
            return captions * (lists + 70), self.neighbours_seconds * (captions / COCO_CAPTIONS) ** 1.3
        if stage == "export" and self.export_bytes is not None and self.export_seconds is not None:
            # 50 bytes per caption are its ids and offsets.
            return round(captions * (self.export_bytes + lists + 50)), captions * self.export_seconds
        return None
