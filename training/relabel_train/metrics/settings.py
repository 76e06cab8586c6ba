"""What a report holds and how deep it looks."""

from __future__ import annotations

from dataclasses import dataclass

from relabel_train.metrics.ranking import Ties


@dataclass(frozen=True)
class ReportSettings:
    """Depths, ties and what is left out.

    Attributes
    ----------
    ties : "pessimistic" or "row"
        Among equal scores the less relevant item comes first, or the lower row or column.
    recall_ks, ncs_ks : tuple of int
        Three each; RSUM and Nsum add them up.
    cs_ks : tuple of int
        Of CS@K.
    ndcg_ks : tuple of int or None
        None is the whole list.
    distance_ks : tuple of int
        Of the mean label distance.
    semantic_ms : tuple of int
        How many more captions (images) Semantic Recall takes as relevant; empty leaves it out.
    label_top : float
        The label's largest value, 1 for cosines: label distance is `label_top` - r.
    label_low : float, optional
        Where given, nDCG's labels are (r - low) / (top - low): -1 turns cosines into S-NDCG's (1 + cosine) / 2.
    kendall_tau : bool
        Kendall's tau over whole lists: the one figure that takes seconds on 5,000 x 25,000.
    tau_queries : int, optional
        Take it over this many queries a direction, drawn with `seed`; all where not given. Others count as left out.
    seed : int
        Draws them.
    recall_only : tuple of str
        Sets of positives on which R@K is all that is taken, as CxC's authors do.
    one_caption : bool
        CS@K as Ladder takes it: of each image only its first caption is in the gallery and asks.
    threads : int, optional
        All cores at hand where not given; no figure depends on it.

    Raises
    ------
    ValueError
        Naming the first that makes no sense.
    """

    ties: Ties = "pessimistic"
    recall_ks: tuple[int, ...] = (1, 5, 10)
    ncs_ks: tuple[int, ...] = (1, 5, 10)
    cs_ks: tuple[int, ...] = (100,)
    ndcg_ks: tuple[int | None, ...] = (None,)
    distance_ks: tuple[int, ...] = (1, 10)
    semantic_ms: tuple[int, ...] = (1,)
    label_top: float = 1.0
    label_low: float | None = None
    kendall_tau: bool = True
    tau_queries: int | None = None
    seed: int = 0
    recall_only: tuple[str, ...] = ("cxc",)
    one_caption: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.ties not in ("pessimistic", "row"):
            raise ValueError(f"ties is {self.ties!r}, not 'pessimistic' or 'row'")
        for name in ("recall_ks", "ncs_ks", "cs_ks", "ndcg_ks", "distance_ks", "semantic_ms"):
            given: tuple[int | None, ...] = getattr(self, name)
            depths = [k for k in given if not (k is None and name == "ndcg_ks")]
            if not all(isinstance(k, int) and k >= 1 for k in depths):
                raise ValueError(f"{name} is {given}; whole numbers of 1 or more are needed")
        for name in ("threads", "tau_queries"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} is {number}, not 1 or more")
