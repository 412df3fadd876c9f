"""Scores that are decoded on access, for metrics that work on the keys and read few scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.typing import Array


class ScoreLookup:
    """Scores of consecutive groups, from the best to the worst; NumPy functions accept it as an array.

    Parameters
    ----------
    decode : function of a slice or an index array of groups, which returns their scores as float64
    start, stop : the range of groups

    Examples
    --------
    >>> scores = ScoreLookup(np.array([0.9, 0.5, 0.25, 0.1]).__getitem__, 1, 4)
    >>> scores.size, scores[0], scores[-1], scores[1:][0], scores[[-1, 0]].tolist()
    (3, 0.5, 0.1, 0.25, [0.1, 0.5])
    >>> np.log2(scores[:2]).tolist()
    [-1.0, -2.0]
    """

    def __init__(self, decode: Callable[[Any], Array], start: int, stop: int) -> None:
        self._decode = decode
        self._start = start
        self._stop = stop
        self._known: dict[int, float] = {}  # bisections read the ends often

    @property
    def size(self) -> int:
        """Number of groups."""
        return self._stop - self._start

    def __len__(self) -> int:
        """Number of groups."""
        return self.size

    def __getitem__(self, groups: Any) -> Any:
        """The score of an index, a `ScoreLookup` of a slice, or an array of the scores of an index or bool array."""
        if isinstance(groups, int | np.integer):
            return self._one(int(groups))
        if isinstance(groups, slice):
            start, stop, step = groups.indices(self.size)
            if (start, stop, step) == (0, self.size, 1):
                return self  # keeps the scores decoded so far
            if step == 1:
                return ScoreLookup(self._decode, self._start + start, self._start + max(start, stop))
            return np.asarray(self)[groups]
        several: Array = np.asarray(groups)
        if several.dtype == np.bool_:
            several = np.flatnonzero(several)
        return self._decode(self._start + np.where(several < 0, several + self.size, several))

    def _one(self, group: int) -> float:
        if group not in self._known:
            if not -self.size <= group < self.size:
                msg = f"there is no group {group} of {self.size}"
                raise IndexError(msg)
            at = self._start + group + (self.size if group < 0 else 0)
            self._known[group] = float(self._decode(slice(at, at + 1))[0])
        return self._known[group]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All scores, decoded."""
        return self._decode(slice(self._start, self._stop)).astype(dtype or np.float64, copy=False)
