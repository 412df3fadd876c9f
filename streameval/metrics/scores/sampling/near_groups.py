"""Groups of the exact state around thresholds: see `streameval.metrics.scores.sampling.cells`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from streameval.kernels.blocks.grid import codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = ["GroupsNear", "NearGroups"]

_CELL_BITS = 9  # of a bin's code that tell its cells apart


class NearGroups(NamedTuple):
    """Scores near thresholds, from the best to the worst.

    Attributes
    ----------
    prefixes : uint64 array of shape (n_groups,), of the bin of each
    scores : float64 array of the same shape
    rows : int64 array of the same shape
    measure : array of shape (n_groups, 2): negatives and positives, as counts or weights
    """

    prefixes: Array
    scores: Array
    rows: Array
    measure: Array


@dataclass(frozen=True)
class GroupsNear:
    """The groups whose scores have some prefixes; a metric whose value is `NearGroups`.

    Attributes
    ----------
    shift : bits of the code below the prefix
    spans : first and last prefix of ranges that do not overlap, ascending
    thresholds : scores that groups are not merged across, ascending
    """

    counts_nan: ClassVar[bool] = True
    shift: int
    spans: tuple[tuple[int, int], ...]
    thresholds: tuple[float, ...]
    name: str = "groups_near"

    def partial(self, part: ScorePart) -> NearGroups | None:
        """The groups of a part; those of 2⁻⁹ of a bin are merged."""
        firsts, lasts = np.array(self.spans, np.uint64).T
        ends = part.ends(np.array([0, part.n.size - 1]))[0] if part.n.size else np.empty(0)
        high, low = (
            codes(np.ascontiguousarray(ends, np.float64)) >> np.uint64(self.shift)
            if ends.size
            else (np.uint64(0), np.uint64(1))
        )
        if not ((firsts <= high) & (lasts >= low)).any():
            return None
        code = codes(np.ascontiguousarray(part.scores, np.float64))
        prefixes = code >> np.uint64(self.shift)
        span = np.searchsorted(lasts, prefixes)
        near = np.flatnonzero((span < lasts.size) & (firsts[np.minimum(span, lasts.size - 1)] <= prefixes))
        if not near.size:
            return None
        cell = code[near] >> np.uint64(max(0, self.shift - _CELL_BITS))
        side = np.searchsorted(self.thresholds, part.scores[near], side="right")
        first = np.flatnonzero(np.append(True, (cell[1:] != cell[:-1]) | (side[1:] != side[:-1])))
        last = np.append(first[1:], near.size) - 1
        columns = (np.add.reduceat(column[near], first) for column in (part.rows, part.n, part.p))
        rows, neg, pos = columns
        return NearGroups(prefixes[near][last], part.scores[near][last], rows, np.stack([neg, pos], axis=1))

    def combine(self, partials: Sequence[NearGroups | None], state: Any) -> NearGroups:
        """The groups of all parts."""
        total = state.totals()
        found = [part for part in partials if part is not None]
        if not found:
            return NearGroups(np.empty(0, np.uint64), np.empty(0), np.empty(0, np.int64), np.empty((0, 2)))
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        order = np.argsort(-columns[1], kind="stable")
        prefixes, scores, rows, measure = (column[order] for column in columns)
        return NearGroups(prefixes, scores, rows, np.ldexp(measure, total.unit) if total.weighted else measure)
