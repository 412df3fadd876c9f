"""Units over blocks: how many rows each block has, and how many equal units would spread as unevenly.

The *effective units* of n rows in B blocks are

    n² (1 − 1/B) / Σ_b (n_b − n/B)²

with n_b the rows of block b, and likewise for its positives and its negatives; the smallest governs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.typing import Array

    N = TypeVar("N", int, Array)


def class_counts(negatives: N, positives: N) -> dict[str, N]:
    """Counts of rows by kind, as `Sizes` takes them, from those of each class.

    >>> class_counts(3, 1)
    {'rows': 4, 'positives': 1, 'negatives': 3}
    """
    return {"rows": negatives + positives, "positives": positives, "negatives": negatives}


def too_few(units: float, of: str, needed: str) -> str:
    """The reason why there is no interval: effective units, rounded down so that they never read as enough.

    >>> too_few(4.97, "rows (campaign)", "at least 5")
    '4.9 effective units of rows (campaign): at least 5 are needed'
    """
    return f"{math.floor(units * 10) / 10:.1f} effective units of {of}: {needed} are needed"


@dataclass(frozen=True, eq=False)
class Sizes:
    """The measure of the rows of each block, by kind.

    Attributes
    ----------
    unit : what is drawn together, such as the column ``campaign``; ``row`` where each row is a unit
    counts : by kind, such as ``rows``, ``positives`` and ``negatives``: arrays of shape (n_blocks,)
    units : number of units; None where it is not known
    single : whether every row is a unit of weight 1; then the effective units are the rows
    """

    unit: str
    counts: Mapping[str, Array]
    units: int | None = None
    single: bool = False

    def of(self, kinds: Sequence[str]) -> Sizes:
        """Some kinds of units alone."""
        if self.counts.keys() <= {*kinds}:
            return self
        return replace(self, counts={kind: counts for kind, counts in self.counts.items() if kind in kinds})

    @cached_property
    def effective(self) -> dict[str, float]:
        """Effective units of each kind that occurs."""
        number = _rows if self.single else effective_units
        return {kind: number(counts) for kind, counts in self.counts.items() if counts.any()}

    @property
    def governing(self) -> tuple[float, str]:
        """The smallest number of effective units, and its kind."""
        return min(((units, kind) for kind, units in self.effective.items()), default=(0.0, "rows"))


def _rows(counts: Array) -> float:
    return float(counts.sum())


def effective_units(counts: Array) -> float:
    """Number of equal units that would spread over the blocks as unevenly.

    Parameters
    ----------
    counts : array of shape (n_blocks,), rows or weights of each block, empty blocks included

    Examples
    --------
    >>> round(effective_units(np.array([1.0, 0, 0, 0])), 12)  # one unit
    1.0
    """
    counts = np.asarray(counts, np.float64)
    total, blocks = counts.sum(), counts.size
    spread = float(np.square(counts - total / blocks).sum())
    return float(total**2 * (1 - 1 / blocks) / spread) if spread else math.inf
