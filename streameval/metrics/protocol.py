"""What a metric is: a pure function of states.

A large state is finalized shard by shard. A metric turns each part of a shard into a *partial*, knowing the totals of
everything above it, and combines the partials of all shards into a `Scalar`. Partials are plain numbers or small
tables; combining does not depend on their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Metric"]


class Metric(Protocol):
    """One number of one state; frozen, so that equal metrics are equal.

    Four members are optional:

    - ``basis(part)`` returns a frozen object that takes the partial in place of the metric. Metrics with equal bases
      share its partials, which are computed once.
    - ``counts_nan`` says what ``nan="half"`` means for a metric of a score: True where its `combine` counts NaN scores
      as halves; otherwise it is undefined as soon as there are any.
    - ``scores`` lists ranges of scores, as pairs of the lowest and the highest, outside which the metric reads nothing.
    - ``several(part)`` takes the partials of many groups in one loop, see `streameval.metrics.sliced`.
    """

    @property
    def name(self) -> str:
        """The name in results, such as ``roc_auc``."""

    def partial(self, part: Any) -> Any:
        """What this part of a shard contributes."""

    def combine(self, partials: Sequence[Any], state: Any) -> Any:
        """The value, a `Scalar` but for curves, from the partials of all parts and the totals of the state.

        An iterative metric gives the metric of its next step instead: the state is finalized again with that one.
        """
