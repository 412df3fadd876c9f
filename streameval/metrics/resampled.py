"""The source of replicates: a state that can leave out each of its blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.metrics.protocol import Metric
    from streameval.metrics.scores.sampling.rankings import Rankings
    from streameval.metrics.units import Sizes
    from streameval.results import Scalar
    from streameval.typing import Array

    Exact = Callable[[Sequence[Metric]], list[Scalar]]


class Resampled(Protocol):
    """A state that can leave out each of its blocks."""

    @property
    def sizes(self) -> Sizes:
        """Measure of each block by kind, `rows` among them."""

    def without(self, block: int) -> Any:
        """A state of the rows of all other blocks, for the metrics of the family."""

    @property
    def thresholded(self) -> Thresholded | None:
        """The same where metrics may depend on the rows beyond a threshold; else None."""
        return None

    @property
    def rows_by_block(self) -> Array | None:
        """Rows of each block by label, those without a score included: int64 array of shape (n_blocks, 2), or None."""
        return None

    def rankings(self, blocks: Sequence[int], *, whole: bool) -> Rankings | None:
        """What metrics of all rows read of `without` some blocks, and last of the `total`, from one loop; or None.

        See `streameval.metrics.scores.sampling.rankings`.
        """
        return None


class Thresholded(Resampled, Protocol):
    """A state whose metrics may depend on the rows beyond a threshold."""

    @property
    def thresholded(self) -> Thresholded:
        """Itself."""
        return self

    def merged(self, count: int) -> Thresholded:
        """The same rows in fewer blocks, block b in b modulo `count`."""

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """Measure of the rows of each block that score at or above a threshold, by kind as the counts of `sizes`."""

    def total(self) -> Any:
        """A state of all rows, where it is not the exact one that the values come from; else None."""

    def focused(self, values: Sequence[Scalar], metrics: Sequence[Metric], exact: Exact) -> Thresholded:
        """The same with more detail around the thresholds of metrics; itself if it has every score."""

    def displaced(self) -> Sequence[Thresholded]:
        """The same with rows one standard deviation from where they are taken to be; empty where that is known."""

    def tied(self, metrics: Sequence[Metric]) -> Sequence[Thresholded]:
        """All rows, with what a block has of a bin beyond its share in one half of it; empty where places are known."""

    def certified(self, exact: Exact) -> str | None:
        """Why the replicates are too inaccurate; None if they pass. `exact` finalizes metrics of the exact state."""
