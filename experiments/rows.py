"""Rows of the table of losses: losses with their main parameter, the label they learn from, and the sampler."""

from __future__ import annotations

from typing import Literal

from relabel.core.parameters import Parameters


class Row(Parameters):
    """One row of the table: losses and their parameters as in `relabel fit`, and what else its training needs.

    `values` of the main parameter, the default first, replace {} in `loss` and `loss_kwargs`. `label` is by default the
    first of `train_labels`. `triplet_epochs` epochs of the summed triplet loss come before the losses.
    """

    loss: tuple[str, ...]
    loss_kwargs: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    label: str | None = None
    sampler: Literal["random", "neighbour", "graded"] = "random"
    triplet_epochs: int = 0

    def at(self, value: float | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the losses and their parameters with a value of the main parameter.

        Examples
        --------
        >>> from experiments.rows import Row
        >>> Row(loss=("triplet", "sam:{}"), loss_kwargs=("sam.tau=0.3",), values=(5, 1)).at(5.0)
        (('triplet', 'sam:5'), ('sam.tau=0.3',))
        """
        text = "" if value is None else f"{value:g}"
        return tuple(x.replace("{}", text) for x in self.loss), tuple(x.replace("{}", text) for x in self.loss_kwargs)


ROWS: dict[str, Row] = {
    "triplet": Row(loss=("triplet",), loss_kwargs=("margin={}",), values=(0.2, 0.05, 0.1, 0.4, 0.8)),
    # The hardest negative alone may not leave its start, where all cosines are nearly equal; VSE-infinity warms up.
    "triplet, warm-up": Row(
        loss=("triplet",), loss_kwargs=("margin={}",), values=(0.2, 0.05, 0.1, 0.4, 0.8), triplet_epochs=1
    ),
    "triplet_soft": Row(loss=("triplet",), loss_kwargs=("negatives=soft", "gamma={}"), values=(50, 5, 10, 20, 100)),
    "kendall": Row(loss=("kendall",), loss_kwargs=("alpha={}",), values=(0.2, 0.05, 0.1, 0.3, 0.5)),
    "sliding_window_kendall": Row(
        loss=("sliding_window_kendall",), loss_kwargs=("alpha={}",), values=(0.2, 0.1, 0.3, 0.4, 0.6)
    ),
    "triplet_soft + kendall": Row(
        loss=("triplet", "kendall:{}"), loss_kwargs=("triplet.negatives=soft",), values=(0.1, 0.003, 0.01, 0.03, 0.3)
    ),
    "bcls": Row(loss=("bcls",), loss_kwargs=("weight={}",), values=(1, 0.1, 0.3, 3, 10)),
    # 0.4 is the threshold of the ladder loss's journal version for cosines of S-BERT.
    "ladder": Row(loss=("ladder",), loss_kwargs=("thresholds=[0.4]", "weights=[1,{}]"), values=(0.25, 0.1, 0.5, 1)),
    # Labels of cider are divided by 10, and so is tau, 3 to 10 in the paper.
    "sam": Row(loss=("sam",), loss_kwargs=("tau={}",), values=(0.3, 0.5, 1, 2), label="cider"),
    "triplet + sam": Row(
        loss=("triplet", "sam:{}"), loss_kwargs=("sam.tau=0.3",), values=(5, 0.3, 1, 10), label="cider"
    ),
    "smooth_ndcg": Row(loss=("smooth_ndcg",), loss_kwargs=("tau={}",), values=(0.01, 0.03, 0.1, 0.3)),
    "smooth_ndcg_triplet": Row(loss=("smooth_ndcg_triplet",), loss_kwargs=("weight={}",), values=(0.5, 0.2, 0.8, 0.95)),
    # The triplet loss of means that ties images and captions together has weight 1; the further one is summed.
    "log_ratio": Row(loss=("log_ratio", "triplet:{}"), values=(0, 0.01, 0.03, 0.1)),
    "dense_triplet": Row(loss=("dense_triplet",), loss_kwargs=("margin={}",), values=(0.03, 0.01, 0.1, 0.3, 1)),
    # One temperature for scores and labels: the divergence is 0 for scores that equal the labels.
    "soft_target": Row(loss=("soft_target",), loss_kwargs=("tau={}", "tau_target={}"), values=(0.1, 0.05, 0.2, 0.45)),
    "multi_positive_infonce": Row(
        loss=("multi_positive_infonce",), loss_kwargs=("tau={}",), values=(0.07, 0.03, 0.15, 0.3)
    ),
    # SigLIP starts at -10, for labels of which one per batch is 1; cosines are mapped to labels around 0.5.
    "graded_sigmoid": Row(loss=("graded_sigmoid",), loss_kwargs=("bias={}",), values=(-10, -5, -2, 0)),
    "bcls, graded batches": Row(
        loss=("bcls",), loss_kwargs=("weight={}",), values=(1, 0.1, 0.3, 3, 10), sampler="graded"
    ),
    "smooth_ndcg_triplet, graded batches": Row(
        loss=("smooth_ndcg_triplet",), loss_kwargs=("weight={}",), values=(0.5, 0.2, 0.8, 0.95), sampler="graded"
    ),
}
"""Default rows. The first value of a main parameter is that of the paper."""
