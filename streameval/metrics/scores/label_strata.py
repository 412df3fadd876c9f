"""Draw the strata of a sample of labels, from the counts of all rows by score and label.

The state is split by label, stratum and block, or by label and unit (`streameval.states.grouped.keys.Labelled`): rows
without a label are a group as well. Strata are cut as `streameval.metrics.scores.label_sample` says.

Strata are known for all rows, or are ranges of scores that drawn rows name, as those of a plan of labels: then the
drawn rows of a stratum, each divided by its probability, sum up to all of its rows, which the exact counts of scores
turn into its range. Numbers that do not fit are refused.

If whole units were drawn, every row of a unit has a label or none has. Drawn by size without replacement, a unit of a
rows has the probability min(1, c·a), with c such that the probabilities of all units sum to the number of drawn ones.
Units with probability 1 are a stratum of their own, without variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa

from streameval.errors import LabelError
from streameval.kernels.keys import unmix
from streameval.metrics.protocol import Metric, ShardMetric
from streameval.metrics.scores.label_sample import EQUAL, Cells, LabelSample
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.results import LabelStratum
from streameval.states.blocks import BLOCKS, blocks_of
from streameval.states.cluster_sizes import SizeTable
from streameval.states.grouped.builder import LabelledGroups
from streameval.states.keyed.ids import identify
from streameval.states.scores.types import decode, rank_keys, round_thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.grouped.tagged import TaggedGroups
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import SplitSpec
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array

_EXPECTED = 10  # labels that a range of scores should have
_HALVINGS = 8  # of all rows, whose scores are cuts
_FEW_UNIFORM = 50  # units drawn uniformly, below which intervals are too narrow

_Value = tuple[object, ...]  # the value of a stratum; empty without strata


class UnitTable(NamedTuple):
    """Units by size.

    Attributes
    ----------
    sizes : `SizeTable` of all units, whose `positives` are the units with labels
    words : uint64 array of shape (n_drawn,), words of the units with labels
    rows, labels : int64 arrays of the same shape, all rows of these units, and those with a label
    """

    sizes: SizeTable
    words: Array
    rows: Array
    labels: Array


@dataclass(frozen=True)
class UnitSizes(ShardMetric["UnitTable", "UnitTable", "ClusterCounts"]):
    """A metric of clusters that are units, whose value is their `UnitTable`."""

    name: str = "unit sizes"

    def read(self, state: ClusterCounts, shard: Interval, budget: Budget | None) -> UnitTable:
        """The units of a shard."""
        sizes, labelled = state.labelled_clusters(shard, budget)
        none = np.empty(0, np.int64)
        tables = [UnitTable(sizes, none.astype(np.uint64), none, none)]
        for counts, rows in labelled:
            drawn = SizeTable(rows, np.zeros_like(rows), np.ones_like(rows))
            tables.append(UnitTable(drawn, unmix(counts.keys), rows, counts.neg + counts.pos))
        return self.combine(tables, state)

    def combine(self, partials: Sequence[UnitTable], state: ClusterCounts) -> UnitTable:
        """The units of all shards."""
        none = np.empty(0, np.int64)
        tables = [UnitTable(SizeTable.union([]), none.astype(np.uint64), none, none), *partials]
        columns = [np.concatenate(column) for column in list(zip(*tables, strict=True))[1:]]
        return UnitTable(SizeTable.union([table.sizes for table in tables]), *columns)


@dataclass(frozen=True, eq=False)
class DrawnUnits:
    """The units of all rows, of which some were drawn; of a store, those of all its nights.

    Attributes
    ----------
    column : of the units
    type : how ids are compared, see `streameval.states.keyed.ids.id_type`
    kind : ``size`` if units were drawn in proportion to their rows, ``uniform``, or ``probability``
    table : the value of `UnitSizes`; None if probabilities were recorded
    """

    column: str
    type: str
    kind: str
    table: UnitTable | None = None

    def count(self, rows: Array) -> int:
        """Number of drawn units, given the labelled rows of each group."""
        return int(np.count_nonzero(rows))

    def scarce(self, rows: Array) -> str | None:
        """Why no metric has an interval."""
        units = self.count(rows)
        if self.kind != "uniform" or units >= _FEW_UNIFORM:
            return None
        return f"{units} units of {self.column} were drawn uniformly, at least {_FEW_UNIFORM} are needed: draw by size"

    def weights(self, units: Sequence[object], rows: Array) -> tuple[Array, list[tuple[object, ...]], Array]:
        """The design weight of each group, its stratum and its block.

        Parameters
        ----------
        units : of each group its unit; None for rows without a label
        rows : int64 array of shape (n_groups,), labelled rows of each group

        Raises
        ------
        LabelError
            If a unit is labelled in part, or one that was drawn with certainty is not labelled.
        """
        drawn = np.flatnonzero(rows)
        if any(units[i] is None for i in drawn.tolist()):
            raise LabelError(f"labelled rows have a null {self.column}; a unit that was drawn has an id")
        ids = pa.array(
            [units[i] for i in drawn.tolist()], {"signed": pa.int64(), "unsigned": pa.uint64()}.get(self.type)
        )
        block = np.zeros(len(units), np.int64)
        block[drawn] = blocks_of(identify(ids, self.type)[0], BLOCKS)
        weight, certain = np.ones(len(units)), np.zeros(len(units), np.bool_)
        if self.table is not None:
            order = np.argsort(self.table.words)
            place = order[np.searchsorted(self.table.words[order], identify(ids, self.type)[0])]
            every, labelled = self.table.rows[place], self.table.labels[place]
            if (labelled < every).any():
                raise LabelError(
                    f"unit {ids[int(np.argmax(labelled < every))].as_py()!r} of {self.column} is labelled in part; "
                    "label all rows of a unit that was drawn, or none"
                )
            if self.kind == "size":
                c, limit = drawing_rate(self.table.sizes, self.table.words.size, self.column)
                weight[drawn] = 1 / np.minimum(1.0, c * every)
                certain[drawn] = every >= limit
        return weight, [("certain",) if sure else () for sure in certain.tolist()], block


def drawing_rate(sizes: SizeTable, drawn: int, column: str) -> tuple[float, float]:
    """C of units drawn in proportion to their rows, and the number of rows from which on a unit is certain.

    Raises
    ------
    LabelError
        If a unit that was certain to be drawn has no label.

    Examples
    --------
    >>> drawing_rate(SizeTable(np.array([1, 2, 40]), np.array([10, 5, 1]), np.array([2, 2, 1])), 5, "campaign")
    (0.2, 40)
    """
    left, c, limit = float((sizes.size * sizes.clusters).sum()), 0.0, math.inf
    columns = (column[::-1].tolist() for column in (sizes.size, sizes.clusters, sizes.positives))
    for rows, units, labelled in zip(*columns, strict=True):
        c = drawn / left
        if c * rows < 1:
            break
        if labelled < units:
            raise LabelError(
                f"a unit of {column} with {rows:,} rows has no label, but drawn by size it would certainly have "
                "one; name the design that was used"
            )
        limit, drawn, left = rows, drawn - units, left - rows * units
    return c, limit


def sample_labels(
    state: LabelledGroups | TaggedGroups,
    metrics: Sequence[Metric],
    design: str,
    units: DrawnUnits | None,
    budget: Budget | None,
) -> LabelSample:
    """The sample of a state that is split by `streameval.states.grouped.keys.Labelled`.

    Parameters
    ----------
    state : the state
    metrics : at their thresholds, and the scores that their numbers of points reach, all rows are counted
    design : how labels were drawn, in words
    units : the units that were drawn; None if rows were drawn
    budget : owns what is read

    Raises
    ------
    LabelError
        If nothing is labelled, a stratum has rows but no labels, or the labels are not of the design; if only the
        labelled rows are there.
    """
    grouped = state.tagged if isinstance(state, LabelledGroups) else state
    key, kind = grouped.spec.key, grouped.spec.inner.type
    groups = [key.group(name) for name in grouped.table.names.to_pylist()]
    numbers = np.array([group[0] for group in groups], np.int64)
    cells, block = read_cells(grouped, numbers > 0, budget), numbers - 1
    values = [group[1:] if key.strata else () for group in groups]
    if units is not None:
        rows = np.bincount(cells.group, cells.counts.sum(axis=0), len(groups)) + grouped.table.facts[:, :2].sum(axis=1)
        rows[numbers == 0] = 0
        drawn = [group[1] if group[0] else None for group in groups]
        weight, values, block = units.weights(drawn, rows)
        cells = cells if key.probability else cells._replace(weights=cells.counts * weight[cells.group])
    total, points = state.total(), [metric for metric in metrics if isinstance(metric, OperatingPoint)]
    every = int(total.keyed.outline.rows.sum())
    taken = [point.points(every) for point in points]
    ranks = list(dict.fromkeys(rank for rank in taken if rank))
    reached = _keys_at(total, ranks, budget)
    thresholds = list(dict.fromkeys(point.at for point in points if point.kind == "threshold"))
    at_ranks = decode(reached, kind).tolist()
    fixed = np.concatenate((_keys_of(thresholds, kind), reached))
    thresholds += at_ranks
    halves = [] if key.strata or units is not None else [every >> i for i in range(1, _HALVINGS + 1)]
    unlabelled = [group for group in state.groups() if not group[0]]
    scores = cast("list[ScoreCounts]", state.several(unlabelled, budget))
    others = dict(zip([group[1:] if key.strata else () for group in unlabelled], scores, strict=True))
    planned = _planned_rows(values, cells, others, every) if key.strata and key.probability else {}
    ends = _keys_at(total, np.cumsum([rows for rows, _ in planned.values()])[:-1].tolist(), budget)
    cuts = np.unique(np.concatenate((fixed, _keys_at(total, halves, budget), ends)))
    rest = _name_rows({value: _count_ranges(one, cuts, budget) for value, one in others.items()}, planned, ends, cuts)
    strata = _cut_strata(grouped.spec, rest, values, cells, cuts, np.isin(cuts, fixed))
    above = strata.above[np.searchsorted(cuts, fixed)].tolist()
    sample = LabelSample(
        replace(grouped.spec.inner, weighted=True),
        design,
        key.unit or "row",
        strata.sizes,
        strata.of_cells,
        block[cells.group],
        cells,
        names=strata.names,
        units=None if units is None else units.count(rows),
        recorded=key.probability is not None or (units is not None and units.kind == "size"),
        scarce=None if units is None else units.scarce(rows),
        unseen=tuple(t for t, k in zip(thresholds, fixed.tolist(), strict=True) if k in strata.crossed),
        ends=strata.ends,
        above=dict(zip(thresholds, above, strict=True)),
        ranks=dict(zip(ranks, at_ranks, strict=True)),
        dropped=int(total.nan_rows.sum()),
    )
    if key.probability and not unlabelled and LabelStratum.whole(sample.strata).doubtful:
        raise LabelError(
            f"every row has a label, but by {key.probability!r} these are a sample of "
            f"{LabelStratum.whole(sample.strata).weight:,.0f} rows; give all rows, with a null label outside the sample"
        )
    return sample


def _planned_rows(
    values: Sequence[_Value], cells: Cells, others: Mapping[_Value, ScoreCounts], every: int
) -> dict[_Value, tuple[int, int]]:
    """If only drawn rows have strata, all rows of each and those without its name, the best scores first; else none.

    A drawn row stands for 1/π rows, with a label or without. The strata of a plan of labels are ranges of scores, so
    these numbers give their ends.
    """
    named = list(dict.fromkeys(values[group] for group in np.unique(cells.group).tolist()))
    if (None,) not in others or (None,) in named:
        return {}
    stratum = np.array([named.index(value) if value in named else 0 for value in values], np.int64)[cells.group]
    labels, weights = (np.bincount(stratum, side.sum(axis=0), len(named)) for side in (cells.counts, cells.weights))
    drawn = labels + [others[value].keyed.outline.rows.sum() if value in others else 0 for value in named]
    rows, best = np.rint(weights / labels * drawn).astype(np.int64), np.full(len(named), cells.keys.max())
    np.minimum.at(best, stratum, cells.keys)
    columns = rows.tolist(), (rows - drawn).astype(np.int64).tolist()
    found = dict(zip(named, zip(*columns, strict=True), strict=True))
    return {named[h]: found[named[h]] for h in np.argsort(best).tolist()} if rows.sum() == every else {}


def _name_rows(
    rest: dict[_Value, Array], planned: Mapping[_Value, tuple[int, int]], ends: Array, cuts: Array
) -> dict[_Value, Array]:
    """Rows without a label by stratum and range, where those without its name are in its scores, if all numbers fit."""
    place = np.searchsorted(ends, [*cuts.tolist(), np.iinfo(np.uint64).max])
    parts = {value: rest[(None,)] * (place == h) for h, value in enumerate(planned)}
    if not parts or any(part.sum() != planned[value][1] for value, part in parts.items()):
        return rest
    return {value: part + rest.get(value, 0) for value, part in parts.items()}


class _Strata(NamedTuple):
    """Final strata: rows and names of each, that of each cell, last keys, thresholds crossed, and rows above cuts."""

    sizes: Array
    names: tuple[str, ...]
    of_cells: Array
    ends: Array
    crossed: Array
    above: Array


def _cut_strata(
    spec: SplitSpec,
    rest: Mapping[tuple[object, ...], Array],
    values: Sequence[tuple[object, ...]],
    cells: Cells,
    cuts: Array,
    fixed: Array,
) -> _Strata:
    """Cut the strata of groups at keys, of which `fixed` are those of thresholds; `rest` are rows without a label."""
    named = list(dict.fromkeys([*values, *rest]))
    stratum, ranges = np.array([named.index(value) for value in values], np.int64), np.searchsorted(cuts, cells.keys)
    labels, weights = np.zeros((len(named), len(cuts) + 1), np.int64), np.zeros((len(named), len(cuts) + 1))
    at, each = (stratum[cells.group], ranges), cells.counts.sum(axis=0)
    np.add.at(labels, at, each)
    sizes = labels + [rest.get(value, np.zeros(len(cuts) + 1, np.int64)) for value in named]
    np.add.at(weights, at, cells.weights.sum(axis=0))
    mean = np.divide(weights, labels, out=np.zeros_like(weights), where=labels > 0)
    varying = np.zeros(sizes.shape, np.bool_)
    np.logical_or.at(varying, at, abs(cells.weights.sum(axis=0) / each - mean[at]) > EQUAL * mean[at])
    lone = (labels == 1) & varying.any(axis=1, keepdims=True)  # one label does not show that weights vary
    recorded = spec.key.probability and not spec.key.unit
    rates = np.where(varying | lone, 0.0, mean) if recorded else np.zeros_like(mean)
    _check_labelled(named, sizes.sum(axis=1), labels.sum(axis=1), spec.key.strata)
    number, crossed = _join(sizes, labels, fixed, rates)
    there, final = np.unique(number[at], return_inverse=True)
    rows = np.bincount(number.ravel(), sizes.ravel(), int(number.max(initial=0)) + 1).astype(np.int64)[there]
    scores = decode(cuts, spec.inner.type).tolist()
    above = np.cumsum(sizes.sum(axis=0))
    names = tuple(_name(named, scores, np.argwhere(number == h)) for h in there.tolist())
    return _Strata(rows, names, final, cuts[np.flatnonzero(np.diff(number[0]))], cuts[crossed], above)


def _check_labelled(named: Sequence[tuple[object, ...]], sizes: Array, labels: Array, strata: str | None) -> None:
    """Raise `LabelError` if a stratum has rows but no labels."""
    for value, rows, labelled in zip(named, sizes.tolist(), labels.tolist(), strict=True):
        if rows and not labelled and strata and value[0] is None:
            raise LabelError(
                f"column {strata!r} is null for {rows:,} rows without a label; the stratum of all rows must be known; "
                "in a plan of exactly these rows it follows from the scores once the probabilities are named as well "
                "(--label-probability), else name the probabilities alone"
            )
        if rows and not labelled:
            of = f"stratum {value[0]!r} of {strata!r} has" if strata else "there are"
            raise LabelError(f"{of} {rows:,} rows but no labels; label some of them, or leave them out (--where)")


def _name(named: Sequence[tuple[object, ...]], ends: Sequence[float], places: Array) -> str:
    """A stratum in words: its value and its range of scores; `places` are the pairs of stratum and range in it."""
    first, last = int(places[:, 1].min()), int(places[:, 1].max())
    low, high = (f"{ends[last]:.6g} <= " if last < len(ends) else ""), (f" < {ends[first - 1]:.6g}" if first else "")
    value, span = named[int(places[0, 0])], f"{low}score{high}"
    return ", ".join([str(each) for each in value] + [span] * (low + high != "")) or "all rows"


def read_cells(grouped: TaggedGroups, labelled: Array, budget: Budget | None) -> Cells:
    """The labelled rows, which are those of the groups that a bool array marks."""
    rows = grouped.by_group(labelled, budget)
    pieces = [counts for interval in rows.keyed.intervals() for counts in rows.keyed.grouped(interval, budget)]
    if not pieces:
        raise LabelError("no row has a label; null labels count as not labelled")
    group = np.concatenate([rows.places(each.keys) for each in pieces])
    keys = np.concatenate([each.rest[:, 0] for each in pieces])
    counts = np.hstack([np.stack((each.neg, each.pos)) for each in pieces])
    sides = [(each.neg_weight, each.pos_weight) for each in pieces]
    weights = [np.stack([side for side in both if side is not None]) for both in sides if grouped.weighted]
    return Cells(group, keys, counts, np.hstack(weights) if weights else counts.astype(np.float64))


def _keys_of(thresholds: Sequence[float], kind: str) -> Array:
    """The key of the lowest score that reaches each threshold."""
    values = round_thresholds(list(thresholds), kind)
    if kind in ("f4", "f8"):
        return rank_keys(values.astype(kind), kind)
    scale, dtype = (100 if kind == "d2" else 1), np.dtype("i8" if kind == "d2" else kind)
    bits = 8 * dtype.itemsize
    low, high = (0, 2**bits - 1) if dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    whole = [min(max(math.ceil(value * scale), low), high) for value in values.tolist()]
    return rank_keys(np.array(whole, dtype), kind)


def _count_ranges(state: ScoreCounts, cuts: Array, budget: Budget | None) -> Array:
    """Rows in each range of keys: an int64 array of shape (n_cuts + 1,); a cut is the last key of its range."""
    codes, rows, upto = state.keyed.outline.codes, state.keyed.outline.rows, [0]
    for cut, bucket in zip(cuts, state.spec.buckets(cuts).tolist(), strict=True):
        within = (
            c.neg[c.keys <= cut].sum() + c.pos[c.keys <= cut].sum() for c in state.groups((bucket, bucket + 1), budget)
        )
        upto.append(int(rows[codes < 2 * bucket].sum()) + sum(map(int, within)))
    return np.diff(upto, append=int(rows.sum()))


def _keys_at(state: ScoreCounts, ranks: Sequence[int], budget: Budget | None) -> Array:
    """Keys of the scores that numbers of rows reach, from the best down; none for 0 rows."""
    codes, rows = state.keyed.outline.codes, state.keyed.outline.rows
    upto, keys = np.cumsum(rows), []
    for rank in ranks:
        if rank:
            bucket = int(codes[int(np.searchsorted(upto, rank))]) >> 1
            before = int(rows[codes < 2 * bucket].sum())
            for counts in state.groups((bucket, bucket + 1), budget):
                within = before + np.cumsum(counts.neg + counts.pos)
                if within[-1] >= rank:
                    keys.append(int(counts.keys[int(np.searchsorted(within, rank))]))
                    break
                before = int(within[-1])
    return np.array(keys, np.uint64)


def _join(sizes: Array, labels: Array, fixed: Array, rates: Array) -> tuple[Array, Array]:
    """The number of the final stratum of each stratum and range, and which cuts were crossed for lack of labels.

    Parameters
    ----------
    sizes, labels : int64 arrays of shape (n_strata, n_ranges), rows and labelled rows
    fixed : bool array of shape (n_ranges - 1,), which cuts are thresholds
    rates : float64 array of shape (n_strata, n_ranges), design weights, 0 where they vary or are not recorded; ranges
        of different ones are not joined
    """
    number, crossed, last = np.zeros(sizes.shape, np.int64), np.zeros(fixed.size, np.bool_), -1
    for h in range(len(sizes)):
        alike = _alike(rates[h], labels[h])
        drawn, every = np.bincount(alike, labels[h]), np.bincount(alike, sizes[h])
        expected = sizes[h] * (drawn / np.maximum(1, every))[alike]
        pieces: list[list[int]] = []  # of ranges
        for segment in np.split(np.arange(sizes.shape[1]), np.flatnonzero(fixed | (np.diff(alike) > 0)) + 1):
            own: list[list[int]] = [[]]
            for place in segment.tolist():
                if own[-1] and expected[own[-1]].sum() >= _EXPECTED:
                    own.append([])
                own[-1].append(place)
            if len(own) > 1 and expected[own[-1]].sum() < _EXPECTED:
                own[-2:] = [own[-2] + own[-1]]
            pieces += own
        merged: list[list[int]] = []
        for piece in pieces:
            lacks = merged and not (labels[h, merged[-1]].any() and labels[h, piece].any())
            if lacks:
                crossed[piece[0] - 1] |= bool(sizes[h, piece].any() and sizes[h, merged[-1]].any())
                merged[-1] = merged[-1] + piece
            else:
                merged.append(piece)
        for piece in merged:
            last += 1
            number[h, piece] = last
    return number, crossed


def _alike(rates: Array, labels: Array) -> Array:
    """The number of the run of ranges with one design weight; ranges without labels belong to the one before."""
    runs, last, run = np.zeros(rates.size, np.int64), math.nan, 0
    for place in np.flatnonzero(labels).tolist():
        rate = float(rates[place])
        run += abs(rate - last) > EQUAL * max(rate, last)
        runs[place:], last = run, rate
    return runs
