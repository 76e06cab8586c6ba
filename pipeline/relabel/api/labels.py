"""An opened label: the relevance of the images and captions of one split, by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError, naming_extras
from relabel.core.tables import Table, html
from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.corpus.build import RowIds
from relabel.sources.relevance import Relevance
from relabel.stages import Session
from relabel.stages.calibrate import need_calibration
from relabel.stages.nearest import Hit, nearest, search_labels
from relabel_train.scoring.calibration import Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS = {"same_image": "captions of one image", "random": "captions of two images"}


@dataclass(frozen=True, eq=False, repr=False)
class Label:
    r"""An opened label: the relevance of the images and captions of one split.

    Returned by `label`, `load` and `encode`. In all matrices, rows are images and columns are captions.

    Attributes
    ----------
    session : Session
        Parameters and folders of the dataset.
    name, split : str
    relevance : Relevance
        The opened encoding. Its methods take corpus rows.
    warnings : tuple of str
        Warnings about the captions and the encoding, such as captions that the model cannot read.

    Examples
    --------
    >>> from pathlib import Path
    >>> import relabel
    >>> captions = ["a,a dog runs", "a,a brown dog", "b,two cats sit"]
    >>> _ = Path("captions.csv").write_text("\n".join(["image_id,text", *captions]))
    >>> corpus = relabel.ingest("labels/mine", "captions.csv", in_split="test")
    >>> labels = relabel.encode("labels/mine", "cider", settings={"sources.cider.tokenizer": "lower_split"})
    >>> labels.image_ids
    ['mine:a', 'mine:b']
    >>> labels.block(images=["mine:a", "mine:b"], captions=labels.caption_ids).shape
    (2, 3)
    """

    session: Session
    name: str
    split: str
    relevance: Relevance
    warnings: tuple[str, ...] = ()
    _folder: Any = None  # a temporary folder of the files, removed with the label

    def __repr__(self) -> str:
        rows, dataset = self.relevance.rows, self.session.config.ingest.dataset
        low, high = self.session.config.source(self.name).spec.bounds
        return f"<Label {self.name} of {dataset} ({self.split}): {len(rows):,} captions, relevance {low:g} to {high:g}>"

    def _repr_html_(self) -> str:
        source, captions = self.session.config.source(self.name), self.relevance.rows
        facts = (
            ("source", source.spec.name),
            ("dataset", f"{self.session.config.ingest.dataset} ({self.split})"),
            ("captions", f"{len(captions):,}"),
            ("images", f"{len(self.corpus.images_of(captions)):,}"),
            ("relevance", "{:g} to {:g}".format(*source.spec.bounds)),
        )
        return html(Table(f"Label {self.name}", (), facts, self.warnings))

    @property
    def corpus(self) -> Corpus:
        """All captions of the dataset, including captions that this label does not cover."""
        return self.relevance.corpus

    @property
    def caption_ids(self) -> list[str]:
        """Ids of the covered captions in the order of the corpus: by image, not by row of your table.

        See `ids`.
        """
        rows = self.relevance.rows
        return self.corpus.caption_ids[rows.start : rows.stop]

    @property
    def ids(self) -> list[RowIds]:
        """Ids of the captions in each row of your table, for ``df["caption_id"] = labels.ids``.

        Returns
        -------
        list of str, list or None
            One entry per row: the id of its caption; a list for a row of several captions or images; None, also in a
            list, for a caption that was left out. Rows of splits that the label does not cover have ids as well.

        Raises
        ------
        UsageError
            If the captions are neither a table in memory nor one Parquet or Arrow file: lines of other files may hold
            no caption, or several.
        CheckError
            If the captions have changed since the label was opened.

        Examples
        --------
        >>> import relabel
        >>> columns = {"image": ["b", "a", "b"], "text": ["two cats sit", "", "a sofa"]}
        >>> relabel.label(columns, "cider", tokenizer="lower_split").ids
        ['captions:b#0', None, 'captions:b#1']
        """
        return self.corpus.ids

    @property
    def image_ids(self) -> list[str]:
        """Ids of the images that the label covers, in the order of the corpus."""
        rows, image = self.relevance.rows, self.corpus.image
        return self.corpus.image_ids[int(image[rows.start]) : int(image[rows.stop - 1]) + 1]

    def block(
        self, images: Sequence[str], captions: Sequence[str], pooling: Pooling | None = None
    ) -> NDArray[np.float64]:
        """Return the exact relevance of every given caption for every given image.

        Parameters
        ----------
        images : sequence of str
            M image ids. The first five captions of each image are its references.
        captions : sequence of str
            N caption ids.
        pooling : {"first", "max", "mean", "set"}, optional
            Reduction over the references of an image. Defaults to the label's.

        Returns
        -------
        ndarray of shape (M, N), float64
            NaN where a caption could not be encoded.

        Raises
        ------
        UsageError
            If an id is not in the corpus or not in this split, or the pooling does not apply to the source.
        """
        self._check_pooling(pooling)
        return self.relevance.block(self._references(images), self._rows(captions), pooling)

    def pairs(
        self, images: Sequence[str], captions: Sequence[str], pooling: Pooling | None = None
    ) -> NDArray[np.float64]:
        """Return the relevance of P pairs of an image and a caption: (P,) float64, equal to the entries of `block`.

        Parameters
        ----------
        images, captions : sequence of str
            P image ids and P caption ids.
        pooling : {"first", "max", "mean", "set"}, optional

        Raises
        ------
        UsageError
            As `block`; and if the two sequences differ in length.
        """
        if len(images) != len(captions):
            raise UsageError(f"pairs need as many images as captions, found {len(images)} and {len(captions)}")
        self._check_pooling(pooling)
        return self.relevance.pairs(self._references(images), self._rows(captions), pooling)

    def probability(self, images: Sequence[str], captions: Sequence[str]) -> NDArray[np.float64]:
        """Return the probability that people score each caption 4 or more, of 5, for each image.

        The label's calibration maps relevance to this probability. It is the result of `relabel correlate --cxc --split
        val` on COCO, or shipped for default parameters. It is valid for pairs like those judged in Crisscrossed
        Captions.

        Parameters
        ----------
        images, captions : sequence of str
            M image ids and N caption ids.

        Returns
        -------
        ndarray of shape (M, N), float64
            0 to 1, non-decreasing in the relevance of `block`. An image's own captions have the share of CxC's, 0.99.
            NaN where a caption could not be encoded.

        Raises
        ------
        UsageError
            If the label has no calibration; and as `block`.
        """
        return self._on_scale(images, captions, "probability")

    def expected(self, images: Sequence[str], captions: Sequence[str]) -> NDArray[np.float64]:
        """Return the expected human score of each caption for each image: (M, N) float64, 0 to 5; see `probability`."""
        return 5 * self._on_scale(images, captions, "expected")

    def _on_scale(self, images: Sequence[str], captions: Sequence[str], scale: Scale) -> NDArray[np.float64]:
        curve, scores = need_calibration(self.session, self.name).curve, self.block(images, captions)
        # The first reference of an image is one of its captions.
        own = self.corpus.image[self._references(images).first().rows]
        return curve.evaluate(scores, scale, own[:, None] == self.corpus.image[self._rows(captions)])

    def nearest(self, caption_id: str | None = None, *, text: str | None = None, k: int = 10) -> list[Hit]:
        """Return the k captions that are most relevant to a caption or a new text.

        Parameters
        ----------
        caption_id : str, optional
            Id of a covered caption. The caption itself is not among the results.
        text : str, optional
            A new text. Give exactly one of the two.
        k : int, default=10

        Returns
        -------
        list of Hit
            Ordered by descending score, then by corpus row. Each has `caption_id`, `image_id`, `text`, `score` and
            `same_image`.

        Raises
        ------
        UsageError
            If the id is unknown, if both or neither of `caption_id` and `text` are given, or if the source cannot score
            a new text.
        """
        if (caption_id is None) == (text is None):
            raise UsageError("nearest() takes either a caption id or a text", hint='nearest(text="a dog")')
        if k < 1:
            raise UsageError(f"k must be at least 1, found {k}")
        source = self.session.config.source(self.name)
        if text is not None or source.is_pairwise():  # a new text may not be supported; slow sources need a gate
            _, answers = search_labels(self.session, text, caption_id, [self.name], k, self.split)
            return next(hits for _, hits in answers if isinstance(hits, list))
        return nearest(self.relevance, self.corpus.find_row(str(caption_id), self.relevance.rows), k)

    @naming_extras()
    def plot(self, axes: Axes | None = None) -> Axes:
        """Plot the distribution of the relevance of two captions, of the same image and of two different images.

        Up to 5,000 pairs of each kind are sampled with seed 0, as in the report. One of the two captions is the only
        reference. The last bin holds all larger values.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Axes to plot into; by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingError
            If matplotlib is not installed.

        Examples
        --------
        >>> import relabel
        >>> columns = {"image": ["a", "a", "b"], "text": ["a dog runs", "a brown dog", "two cats sit"]}
        >>> axes = relabel.label(columns, "cider", tokenizer="lower_split").plot()
        >>> axes.get_xlabel()
        'relevance by cider'
        """
        from matplotlib import pyplot

        from relabel.page.captions import choose_captions, draw_scores
        from relabel.page.charts import bin_scores

        axes = axes or pyplot.subplots()[1]
        edges, shares = bin_scores(draw_scores(self.relevance, choose_captions(self.corpus, self.relevance.rows), None))
        for kind, values in shares.items():
            axes.stairs(
                values, edges, label=_KINDS[kind], fill=kind == "same_image", alpha=0.6 if kind == "same_image" else 1
            )
        axes.set(xlabel=f"relevance by {self.name}", ylabel="share of pairs")
        axes.legend()
        return axes

    def _check_pooling(self, pooling: Pooling | None) -> None:
        if pooling is not None:
            self.session.config.source(self.name).check_pooling(pooling)

    def _rows(self, caption_ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the corpus rows of covered captions, (N,) int32."""
        _check_sequence("captions", caption_ids)
        corpus, rows = self.corpus, self.relevance.rows
        return np.array([corpus.find_row(caption_id, rows) for caption_id in caption_ids], np.int32)

    def _references(self, image_ids: Sequence[str]) -> References:
        """Return the reference sets of the images that the label covers."""
        _check_sequence("images", image_ids)
        corpus, rows = self.corpus, self.relevance.rows
        return corpus.references([corpus.find_image(image_id, rows) for image_id in image_ids])


def _check_sequence(name: str, ids: Sequence[str]) -> None:
    # A string is a sequence of strings: without this check its letters would be looked up.
    if isinstance(ids, str):
        raise UsageError(f"{name} must be a sequence of ids, found the string {ids!r}", hint=f"{name}=[{ids!r}]")
