"""Groups of the exact state around thresholds: see `streameval.metrics.scores.sampling.cut_bins`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from streameval.kernels.blocks.grid import codes, scores_of
from streameval.metrics.protocol import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

_SUB_BIN_BITS = 9  # bits of a code that distinguish the sub-bins of a bin


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
class GroupsNear(Metric):
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

    @property
    def scores(self) -> tuple[tuple[float, float], ...]:
        """The lowest and the highest score of each span, or beyond."""
        bottom, top = codes(np.array([-np.inf, np.inf])).tolist()
        ends = [((first << self.shift), ((last + 1) << self.shift) - 1) for first, last in self.spans]
        found = scores_of(np.array([[max(a, bottom), min(b, top)] for a, b in ends], np.uint64))
        beyond = np.array([-np.inf, np.inf])
        return tuple(map(tuple, np.nextafter(np.nextafter(found, beyond), beyond).tolist()))  # codes lose a bit

    def partial(self, part: ScorePart) -> NearGroups | None:
        """The groups of a part; those of 2⁻⁹ of a bin are merged."""
        if not part.n.size:
            return None
        firsts, lasts = np.array(self.spans, np.uint64).T
        ends = part.ends(np.array([0, part.n.size - 1]))[0]
        high, low = codes(np.ascontiguousarray(ends, np.float64)) >> np.uint64(self.shift)
        if not ((firsts <= high) & (lasts >= low)).any():
            return None
        code = codes(np.ascontiguousarray(part.scores, np.float64))
        upward = (code >> np.uint64(self.shift))[::-1]
        stops = code.size - upward.searchsorted(firsts)
        starts = code.size - upward.searchsorted(lasts, side="right")
        spans = [slice(a, b) for a, b in zip(starts[::-1].tolist(), stops[::-1].tolist(), strict=True) if a < b]
        columns = code, part.scores, part.rows, part.n, part.p
        found = [self._merged(*(column[span] for column in columns)) for span in spans]
        return NearGroups(*map(np.concatenate, zip(*found, strict=True))) if found else None

    def _merged(self, code: Array, scores: Array, rows: Array, neg: Array, pos: Array) -> NearGroups:
        """Groups from the best score to the worst; those of one sub-bin on one side of each threshold are merged."""
        sub_bin = code >> np.uint64(max(0, self.shift - _SUB_BIN_BITS))
        begins = np.append(True, sub_bin[1:] != sub_bin[:-1])
        below = code.size - scores[::-1].searchsorted(self.thresholds)  # where those below a threshold begin
        begins[below[below < code.size]] = True
        first = np.flatnonzero(begins)
        last = np.append(first[1:], code.size) - 1
        rows, neg, pos = (np.add.reduceat(column, first) for column in (rows, neg, pos))
        return NearGroups(code[last] >> np.uint64(self.shift), scores[last], rows, np.stack([neg, pos], axis=1))

    def combine(self, partials: Sequence[NearGroups | None], state: Any) -> NearGroups:
        """The groups of all parts; how a state is cut into parts changes nothing."""
        total = state.totals()
        found = [part for part in partials if part is not None]
        if not found:
            measure = np.empty((0, 2), np.float64 if total.weighted else np.int64)
            return NearGroups(np.empty(0, np.uint64), np.empty(0), np.empty(0, np.int64), measure)
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        order = np.argsort(-columns[1], kind="stable")
        _, scores, rows, measure = (column[order] for column in columns)
        merged = self._merged(codes(np.ascontiguousarray(scores)), scores, rows, *measure.T)
        return merged._replace(measure=np.ldexp(merged.measure, total.unit)) if total.weighted else merged
