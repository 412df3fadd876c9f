"""Purity by size: the share of positives among the rows of clusters of similar size.

This is what AUL sees of a clustering: the table size → (clusters, positives). Sizes are grouped by powers of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import OptionError
from streameval.results import Bins

if TYPE_CHECKING:
    from streameval.states.clusters.sizes import SizeTable


def purity_curve(table: SizeTable, of: str) -> Bins:
    """The share of positives by cluster size: 1, 2 to 3, 4 to 7, and so on.

    x is the mean size of the clusters of a bin.

    Raises
    ------
    OptionError
        If there are no rows.

    Examples
    --------
    >>> from streameval.states.clusters.sizes import SizeTable
    >>> found = purity_curve(SizeTable.of(np.array([1, 1, 3]), np.array([0, 1, 3])), "cluster")
    >>> found.low.tolist(), found.high.tolist(), found.y.tolist(), found.counts.tolist()
    ([1.0, 3.0], [1.0, 3.0], [0.5, 1.0], [2.0, 3.0])
    """
    if not table.size.size:
        msg = f"the purity curve of {of!r} is not defined: no rows"
        raise OptionError(msg)
    level = np.frexp(table.size.astype(np.float64))[1]
    first = np.flatnonzero(np.diff(level, prepend=-1))
    last = np.append(first[1:], level.size) - 1
    rows, clusters, positives = (
        np.add.reduceat(column, first).astype(np.float64)
        for column in (table.size * table.clusters, table.clusters, table.positives)
    )
    low, high = (table.size[ends].astype(np.float64) for ends in (first, last))
    return Bins(
        "purity", of, rows / clusters, positives / rows, low, float(positives.sum() / rows.sum()),
        positives=float(positives.sum()), rows=float(rows.sum()), low=low, high=high, counts=rows,
    )  # fmt: skip
