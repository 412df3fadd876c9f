"""What a metric is: a pure function of states.

A large state is finalized shard by shard. A metric turns each part of a shard into a *partial*, knowing the totals of
everything above it, and combines the partials of all shards into a `Scalar`. Partials are plain numbers or small
tables; combining does not depend on their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

__all__ = ["Metric", "Partials"]


class Partials(list[Any]):
    """Partials of one metric, and what metrics of the same state have made of theirs.

    Metrics with equal bases have the same partials, so that what follows from them is the same, too.

    Examples
    --------
    >>> rows, made = [object(), object()], {}
    >>> one, other = Partials(rows, made), Partials(rows, made)
    >>> one.once("size", one, lambda: len(one)), other.once("size", other, lambda: 1 / 0)
    (2, 2)
    """

    def __init__(self, partials: Iterable[Any] = (), made: dict[Any, Any] | None = None) -> None:
        super().__init__(partials)
        self._made = {} if made is None else made

    @classmethod
    def of(cls, partials: Sequence[Any]) -> Partials:
        """The partials themselves, or those of a list, which share nothing."""
        return partials if isinstance(partials, cls) else cls(partials)

    def once(self, name: Hashable, things: Sequence[Any], make: Callable[[], Any]) -> Any:
        """What follows from these objects, made for the first metric that asks; what else decides it is in the name."""
        key = name, *map(id, things)
        if key not in self._made:
            self._made[key] = list(things), make()  # an object that is kept shares its id with no other
        return self._made[key][1]


class Metric(Protocol):
    """One number of one state; frozen, so that equal metrics are equal.

    Six members are optional:

    - ``basis(part)`` returns a frozen object that takes the partial in place of the metric. Metrics with equal bases
      share its partials, which are computed once.
    - ``together(bases, part)``, a static method, returns an object whose ``partial(part)`` lists the partials of many
      bases of a class, for this part and the next ones; or None, and each is asked on its own.
    - ``counts_nan`` says what ``nan="half"`` means for a metric of a score: True where its `combine` counts NaN scores
      as halves; otherwise it is undefined as soon as there are any.
    - ``scores`` lists ranges of scores, as pairs of the lowest and the highest, outside which the metric reads nothing.
    - ``ranked(rankings)`` lists the partials of several rankings, or is None, see
      `streameval.metrics.scores.sampling.rankings`.
    - ``several(part)`` takes the partials of many groups in one loop, see `streameval.metrics.sliced`.
    """

    @property
    def name(self) -> str:
        """The name in results, such as ``roc_auc``."""

    def partial(self, part: Any) -> Any:
        """What this part of a shard contributes."""

    def combine(self, partials: Sequence[Any], state: Any) -> Any:
        """The value, a `Scalar` except for curves, from the partials of all parts and the totals of the state.

        What metrics of equal bases have in common is made once with `Partials.once`.

        An iterative metric gives the metric of its next step instead: the state is finalized again with that one.
        """
