"""Drawing a deterministic sample of rows; shared by the states that hold a sample.

A row is drawn if a keyed hash of its number (`streameval.scan.pieces`) lies below the requested share, so any worker
draws the same rows in any order, from any files. Five further bits of the hash assign the row to one of 32 random
groups; leaving out one group at a time gives the standard error of an estimate
(`streameval.metrics.scores.sampled_gain`). If row groups are drawn instead of rows, the scan omits the others; then all
rows that arrive are taken, and all rows of a row group are assigned to one group.

Rows are drawn uniformly, independently of their weights, and keep their weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.exact import quotients
from streameval.kernels.jit import read_only
from streameval.kernels.keys import hash_bytes
from streameval.kernels.sampling import BITS, CELLS, GROUPS, draw, draw_kept, gather
from streameval.states.scores.types import numbers, refuse_nan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streameval.budget import Budget
    from streameval.states.protocol import Batch
    from streameval.typing import Array

__all__ = ["CELLS", "GROUPS", "Draws", "GroupedBins", "check_sample", "facts", "origin_hash"]

FILL = 1 << 20  # number of drawn scores that are sorted together
SLICE = 1 << 16  # number of rows processed at a time
_NO_WEIGHTS = read_only(np.empty(0)), np.empty(0)


@lru_cache(maxsize=1024)
def origin_hash(seed: int, origin: str) -> int:
    """A 64-bit hash of a sequence of rows under a seed."""
    return hash_bytes(f"{seed}\0{origin}".encode(errors="surrogateescape"))[0]


def check_sample(sample: float) -> None:
    """Raise `OptionError` unless `sample` is a share in (0, 1]."""
    if not (isinstance(sample, int | float | np.number) and 0 < sample <= 1):
        raise OptionError(f"sample={sample!r} is not a share in (0, 1] (--sample)")


class DrawsSpec(Protocol):
    """The fields of a spec that define its sample; see `streameval.states.sampled.digests.DigestsSpec`."""

    @property
    def column(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def nan(self) -> str: ...
    @property
    def sample(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def whole(self) -> bool: ...
    @property
    def weighted(self) -> bool: ...


class Draws:
    """Draws rows from batches and passes them on, 2²⁰ at a time, cell by cell and in ascending order.

    The number of rows passed on together does not depend on the size of the batches, so neither do digests.

    Parameters
    ----------
    spec : DrawsSpec
    take : function of a cell (2·group + label), its scores as an ascending float64 array, and their weights or None
    budget : lends the buffers, 18 MiB, or 35 MiB with weights
    """

    def __init__(self, spec: DrawsSpec, take: Callable[[int, Array, Array | None], None], budget: Budget) -> None:
        self.spec = spec
        self.seen = np.zeros(2, np.int64)
        self.nan_rows = np.zeros(2, np.int64)
        self._take = take
        self._share = math.ceil(spec.sample * (1 << BITS))
        self._budget = budget
        self._values, self._sorted = (budget.borrow(FILL + SLICE, np.float64) for _ in range(2))
        self._weights, self._carried = (
            budget.borrow(FILL + SLICE if spec.weighted else 0, np.float64) for _ in range(2)
        )
        self._cells = budget.borrow(FILL + SLICE, np.uint8)
        self._fill = 0

    def update(self, batch: Batch) -> None:
        """Draw rows from a batch; raises `NullError` if the policy refuses a missing score."""
        array, label, kept = batch.columns[self.spec.column], batch.label, batch.kept
        weight = batch.weight if self.spec.weighted else None
        nan = np.zeros(2, np.int64)
        if array.null_count:
            valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
            nan += np.bincount(np.delete(label, valid), minlength=2)
            array, label, kept = array.drop_null(), label[valid], valid if kept is None else kept[valid]
            weight = None if weight is None else weight[valid]
        values = numbers(array, self.spec.type)
        values = read_only(quotients(values, int(self.spec.type[1:])) if self.spec.type[0] == "d" else values)
        label = read_only(label)
        nan += _nan_rows(values, label)
        places = np.arange(label.size) if kept is None and weight is not None else kept
        weight = None if weight is None else read_only(weight)
        seed = np.uint64(origin_hash(self.spec.seed, batch.origin))
        group = origin_hash(self.spec.seed, f"{batch.origin}\0{batch.start}") % GROUPS if self.spec.whole else -1
        for start in range(0, values.size, SLICE):
            part = slice(start, start + SLICE)
            out = self._values[self._fill :], self._cells[self._fill :]
            rest = seed, self._share, group, *out
            if places is None:
                self._fill += draw(values[part], label[part], batch.row + start, *rest)
            else:
                carried = (weight[part], self._weights[self._fill :]) if weight is not None else _NO_WEIGHTS
                self._fill += draw_kept(values[part], label[part], batch.row, places[part], *rest, *carried)
            if self._fill >= FILL:
                self._pass_on(FILL)
        refuse_nan(self.spec.nan, nan, batch.name, self.spec.column)
        positives = np.count_nonzero(batch.label)
        self.seen += (batch.label.size - positives, positives) - nan
        self.nan_rows += nan

    def _pass_on(self, size: int) -> None:
        starts = gather(self._values[:size], self._cells[:size], self._sorted)
        if self.spec.weighted:
            gather(self._weights[:size], self._cells[:size], self._carried)
        for cell, (a, b) in enumerate(pairwise(starts.tolist())):
            if b > a:
                self._take(cell, *self._ascending(a, b))
        rest = self._fill - size
        for buffer in (self._values, self._cells, *([self._weights] if self.spec.weighted else [])):
            buffer[:rest] = buffer[size : self._fill]
        self._fill = rest

    def _ascending(self, a: int, b: int) -> tuple[Array, Array | None]:
        """The scores of a cell in ascending order, with their weights."""
        scores = self._sorted[a:b]
        if self.spec.weighted:
            order = np.argsort(scores, kind="stable")
            return scores[order], self._carried[a:b][order]
        scores.sort()
        return scores, None

    def finish(self) -> tuple[Array, Array]:
        """Pass on the remaining rows; returns the rows seen and those with a NaN or null score, both by label."""
        self._pass_on(self._fill)
        for buffer in (self._values, self._sorted, self._cells, self._weights, self._carried):
            self._budget.give_back(buffer)
        return self.seen, self.nan_rows


def _nan_rows(values: Array, label: Array) -> Array:
    """Number of NaN scores by label, an int64 array of shape (2,)."""
    lowest = values.min() if values.size and values.dtype.kind == "f" else 0.0  # NaN if any score is; a fast check
    return np.bincount(label[np.isnan(values)], minlength=2) if lowest != lowest else np.zeros(2, np.int64)


@dataclass(frozen=True)
class GroupedBins:
    """Counts of a sample by bin, from the best scores to the worst.

    Attributes
    ----------
    counts : array of shape (32, 2, n_bins), rows by group and label; int64, or float64 if interpolated
    weights : float64 array of shape (32, 2, n_bins), sums of weights; None without weights
    single : bool array of shape (n_bins,), whether a bin is known to hold a single score
    counted : whether counts and weights are exact rather than interpolated
    """

    counts: Array
    weights: Array | None
    single: Array
    counted: bool = True


def facts(header: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays that a header stores besides the spec."""
    kinds = {"infinite_weight": np.float64}
    return {name: np.array(values, kinds.get(name, np.int64)) for name, values in header.items() if name != "spec"}
