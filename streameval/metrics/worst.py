"""The costliest groups of many, in bounded memory.

Groups arrive in blocks of arrays. Those that cannot be among the `top` are dropped at once, so a sweep over 10⁸
clusters keeps a few times `top` of them. Groups of equal cost are ranked by id, so all sweeps over the same groups keep
the same ones, whatever their order and their division into blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.typing import Array

_SIGN = np.uint64(1 << 63)


class Worst:
    """The `top` groups of largest cost; owned by one task.

    Parameters
    ----------
    top : int
    signed : bool
        Whether ids are signed integers, which decides their order.
    costs : int
        Number of leading columns that make up the cost, compared one after the other.

    Examples
    --------
    >>> worst = Worst(2, signed=False)
    >>> worst.add(np.array([[7], [8], [9]], np.uint64), np.array([[1, 30], [5, 20], [1, 10]]))
    >>> ids, columns = worst.ranked()
    >>> ids.ravel().tolist(), columns.tolist()
    ([8, 7], [[5, 20], [1, 30]])
    """

    def __init__(self, top: int, *, signed: bool, costs: int = 1) -> None:
        self.top, self.signed, self.costs = top, signed, costs
        self._ids: Array | None = None
        self._columns = np.empty((0, costs), np.int64)

    def near(self, costs: Array) -> Array:
        """Positions of the groups that can be among the worst, given the first column of their costs."""
        full = self._ids is not None and len(self._ids) >= self.top
        edge = self._columns[self.top - 1, 0] if full else None  # the kept ones are in order
        near: Array = np.arange(costs.size) if edge is None else np.flatnonzero(costs >= edge)
        if near.size > 2 * self.top:
            some = costs[near]
            near = near[some >= np.partition(some, near.size - self.top)[near.size - self.top]]
        return near

    def add(self, ids: Array, columns: Array) -> None:
        """Take groups: uint64 words of shape (n_groups, n_words), int64 columns of shape (n_groups, n_columns)."""
        near = self.near(columns[:, 0])
        ids, columns = ids[near], columns[near]
        if not len(ids):
            return
        if self._ids is not None:
            ids, columns = np.concatenate((self._ids, ids)), np.concatenate((self._columns, columns))
        order = self._order(ids, columns)[: self.top]
        self._ids, self._columns = ids[order], columns[order]

    def _order(self, ids: Array, columns: Array) -> Array:
        first = ids[:, 0] ^ _SIGN if self.signed else ids[:, 0]
        words = [ids[:, c] for c in range(ids.shape[1] - 1, 0, -1)]
        costs = [-columns[:, c] for c in range(self.costs - 1, -1, -1)]
        return np.lexsort([*words, first, *costs])

    def merge(self, others: Iterable[Worst]) -> Worst:
        """The costliest groups of all."""
        found = Worst(self.top, signed=self.signed, costs=self.costs)
        for part in (self, *others):
            ids, columns = part.ranked()
            if len(ids):
                found.add(ids, columns)
        return found

    def ranked(self) -> tuple[Array, Array]:
        """Ids and columns, the largest cost first."""
        return (np.empty((0, 1), np.uint64) if self._ids is None else self._ids), self._columns
