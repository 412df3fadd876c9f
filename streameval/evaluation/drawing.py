"""Curves and distributions of an evaluation: the states are read once for several curves of several columns."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.evaluation.intervals import compute_further
from streameval.evaluation.request import LEVEL
from streameval.evaluation.tables import LookUp, Tables
from streameval.kinds import of_column
from streameval.metrics.catalogue import entry_of
from streameval.metrics.curves import CurveKind, ScoreRange, band_of, curve_kind, no_band, places
from streameval.metrics.finalize import compute_metrics, in_rounds
from streameval.metrics.resampling import Resampled, SplitState, units_beyond
from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.metrics.scores.label_sample import LabelSample
from streameval.metrics.scores.ranking import RocAuc
from streameval.results import Curve, Distribution, Scalar, same_slice, slice_name
from streameval.states.scores.blocks import FEW_BLOCKS
from streameval.states.scores.types import numbers_only

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.slices import SlicedStates
    from streameval.metrics.protocol import Exact, Metric
    from streameval.states.protocol import Source, State

    Threshold = float | Mapping[str, float]  # as the option has it

BANDED = ("roc", "precision_recall", "gain", "lift")  # curves that lie between 0 and 1 and have replicates


def _metrics_of(kinds: Sequence[CurveKind], threshold: float) -> list[Metric]:
    return list(dict.fromkeys(metric for kind in kinds for metric in kind.metrics(threshold)))


def _make(kind: CurveKind, state: Source, of: str, threshold: float, values: Mapping[Metric, Any]) -> Curve:
    """The curve of a kind from the values of its metrics: an estimate if labels are a sample."""
    curve = kind.make([values[metric] for metric in kind.metrics(threshold)], state, of, threshold)
    return replace(curve, exact=False) if isinstance(state, LabelSample) else curve


def _draw(
    kinds: Sequence[CurveKind], state: Source, of: str, threshold: float, values: Mapping[Metric, Any]
) -> list[Curve | None]:
    """The curves of these kinds from the values of their metrics; None where a curve is not defined."""
    curves: list[Curve | None] = []
    for kind in kinds:
        try:
            curves.append(_make(kind, state, of, threshold, values))
        except OptionError:
            curves.append(None)
    return curves


def curves_of(
    engine: Engine, states: Mapping[tuple[str, str], State], kinds: Sequence[CurveKind], aul_threshold: Threshold
) -> list[Curve]:
    """The curves of these kinds of all columns, kind by kind; those that are not defined are left out.

    Parameters
    ----------
    engine : what the run shares
    states : by family and column
    kinds : of curves
    aul_threshold : clusters larger than this count as if all positive, as the option has it
    """
    columns, jobs = [], []
    for (family, of), state in states.items():
        if own := [kind for kind in kinds if kind.family == family]:
            threshold = of_column(aul_threshold, of)
            columns.append((own, of, threshold))
            jobs.append((own[0].drawn(state), _metrics_of(own, threshold)))
    curves: list[tuple[CurveKind, Curve | None]] = []
    for (own, of, threshold), (drawn, metrics), row in zip(columns, jobs, engine.finalize(jobs), strict=True):
        curves += zip(own, _draw(own, drawn, of, threshold, dict(zip(metrics, row, strict=True))), strict=True)
    return [curve for _, curve in sorted(curves, key=lambda pair: kinds.index(pair[0])) if curve is not None]


def with_bands(
    engine: Engine,
    states: Mapping[tuple[str, str], State],
    curves: Sequence[Curve],
    resampled: Mapping[tuple[str, str], Resampled],
    aul_threshold: Threshold,
    level: float,
) -> list[Curve]:
    """The curves, with pointwise sampling intervals where there are replicates: from the curves without each block.

    Parameters
    ----------
    engine : what the run shares
    states : by family and column; they tell whether a grid of scores is fine enough
    curves : of all rows
    resampled : by family and column, gives the states without each block
    aul_threshold : clusters larger than this count as if all positive, as the option has it
    level : of the intervals
    """
    banded, columns = list(curves), defaultdict[tuple[str, str], list[int]](list)
    for i, curve in enumerate(curves):
        key = curve_kind(curve.name).family, str(curve.of)
        if curve.name in BANDED and key in resampled:
            columns[key].append(i)
    for key, at in columns.items():
        split, some, reason = resampled[key], [curves[i] for i in at], None
        exact = partial(compute_further, engine, states[key], {})
        if isinstance(split, BlockReplicates):
            reason = split.certified(exact)
            split = split if reason else _focus(some, split.merged(FEW_BLOCKS), exact)
        elif isinstance(split, SplitState):
            split = split.merged(FEW_BLOCKS)
        if reason is None:
            with_band = _banded(some, split, of_column(aul_threshold, key[1]), level)
        else:
            with_band = [replace(curve, band=no_band(split.sizes, level, reason)) for curve in some]
        for i, curve in zip(at, with_band, strict=True):
            banded[i] = curve
    return banded


def _focus(curves: Sequence[Curve], grid: BlockReplicates, exact: Exact) -> BlockReplicates:
    """The same with more detail around the thresholds of the bands."""
    found = {float(t): curve for curve in curves for t in curve.thresholds[places(curve)].tolist()}
    values = [replace(Scalar.certain(curve.name, 0.5), threshold=t) for t, curve in found.items() if math.isfinite(t)]
    return grid.focused(values, [RocAuc()] * len(values), exact)


def _banded(curves: Sequence[Curve], split: Resampled, aul_threshold: float, level: float) -> list[Curve]:
    """Curves of one column with their bands; each state without a block is read once for all."""
    kinds, of = [curve_kind(curve.name) for curve in curves], str(curves[0].of)
    metrics = _metrics_of(kinds, aul_threshold)

    def draw(state: Source | None) -> list[Curve | None]:
        if state is None:
            return [None] * len(kinds)
        drawn = kinds[0].drawn(state)
        return _draw(kinds, drawn, of, aul_threshold, dict(zip(metrics, compute_metrics(drawn, metrics), strict=True)))

    grids = draw(split.total() if isinstance(split, BlockReplicates) else None)
    rows = split.sizes.counts["rows"].tolist()
    replicates = [draw(split.without(block) if rows[block] else None) for block in range(len(rows))]
    units, _ = split.sizes.governing
    banded = []
    for curve, kind, grid, own in zip(curves, kinds, grids, zip(*replicates, strict=True), strict=True):
        if all(one is not None for one, filled in zip(own, rows, strict=True) if filled):
            entry = entry_of(kind.point) if kind.point else None  # of the metric that a point of the curve stands for
            beyond = cache(partial(units_beyond, kind=entry, split=split) if entry else lambda _: math.inf)
            band = band_of(curve, own, split.sizes, level, beyond, grid)
        else:
            band = no_band(split.sizes, level, "a replicate is undefined")  # it has one class
        banded.append(replace(curve, band=replace(band, effective_units=units if math.isfinite(units) else None)))
    return banded


class Drawing(Tables, LookUp):
    """Curves and distributions that an evaluation computes from its states on request."""

    _resampled: Mapping[tuple[str, str], Resampled]
    _again: Callable[[], Drawing] | None
    _sliced: SlicedStates | None

    def curve(self, name: str, of: str | None = None, slice: Mapping[str, object] | None = None) -> Curve:
        """A curve for drawing.

        A curve has at most 10,000 points; its area is that of the full curve. NaN scores are always left out. The
        states of the evaluation are read once more, except on threads for ``reliability`` after ``ece`` and for
        ``corp`` after ``corp.mcb``. If the evaluation has sampling intervals, ``roc``, ``precision_recall``, ``gain``
        and ``lift`` have a band of pointwise intervals.

        Parameters
        ----------
        name : str
            For a score: ``roc``, ``precision_recall``, ``gain``, ``reliability`` (a `Reliability` with ten bins of
            equal width; ``reliability@20`` has 20 bins, ``reliability@20/equal_count`` the same number of rows in
            each), ``corp`` (the isotonic fit). For a cluster column: ``lift``, ``purity`` (share of positives by size).
        of : str, optional
            The score or cluster column, if there are several.
        slice : mapping, optional
            A slice of `by`, such as ``{"country": "DE"}``; without a band. `streameval.plot_curve` draws the curves of
            several slices on one `ax`.

        Raises
        ------
        OptionError
            If there is no such curve or slice, `of` is needed, or the curve is undefined.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.25, 0.25, 0.5, 0.75]})
        >>> found = evaluate(data, score="score").curve("reliability@2")
        >>> found.x.tolist(), found.y.tolist(), found.counts.tolist()
        ([0.3333333333333333, 0.75], [0.3333333333333333, 1.0], [3.0, 1.0])
        """
        kind = curve_kind(name)
        engine, column, state = self._counts(kind.family, of, f"{name} curve", kind.default)
        if slice is not None:
            state = self._state_of(slice, kind.family, column)
        state = kind.drawn(state)
        threshold = of_column(self._threshold, column)
        metrics = kind.metrics(threshold)
        [values] = engine.finalize([(state, metrics)])
        curve = _make(kind, state, column, threshold, dict(zip(metrics, values, strict=True)))
        return self._banded(engine, [curve])[0] if slice is None else replace(curve, of=f"{column}{slice_name(slice)}")

    def _state_of(self, slice: Mapping[str, object], family: str, column: str) -> State:
        """The state of a column in a slice."""
        there = any(same_slice(one.slice, slice) for one in self.results if one.slice)
        if there and self._sliced is None:
            raise OptionError(
                "the curve of a slice needs the states of a run over files: evaluate them with by (--by)", "slice"
            )
        state = self._sliced.state(family, column, slice) if there and self._sliced else None
        if state is None:
            raise self._no_slice(slice)
        return state

    def curves(self, *names: str) -> tuple[Curve, ...]:
        """The named curves of all columns, kind by kind; undefined curves are left out.

        The default names are ``roc``, ``precision_recall``, ``gain`` and ``lift``. The curves equal those of `curve`,
        but the states are read only once for all of them.

        Raises
        ------
        OptionError
            If a name is not that of a curve.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> [curve.name for curve in evaluate(data, score="score").curves()]
        ['roc', 'precision_recall', 'gain']
        """
        kinds = [curve_kind(name) for name in names or ("roc", "precision_recall", "gain", "lift")]
        if self._engine is None:
            return ()
        return tuple(self._banded(self._engine, curves_of(self._engine, self._states, kinds, self._threshold)))

    def _banded(self, engine: Engine, curves: Sequence[Curve]) -> list[Curve]:
        """Add bands to the curves that have replicates."""
        source, level = self._again() if self._again else self, self.ci_level or LEVEL
        return with_bands(engine, self._states, curves, source._resampled, self._threshold, level)  # noqa: SLF001 - of this class

    def distribution(self, of: str | None = None, bins: int = 100) -> Distribution:
        """The distribution of the scores of each class, for drawing.

        The states of the evaluation are read twice. NaN scores are left out; infinite scores are counted separately.

        Parameters
        ----------
        of : str, optional
            The score column, if there are several.
        bins : int
            Number of bins of equal width from the lowest to the highest score, at most 10,000.

        Raises
        ------
        OptionError
            If `of` is needed, there are no finite scores, or `bins` is not a number of bins.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.9]})
        >>> found = evaluate(data, score="score").distribution(bins=2)
        >>> found.edges.tolist(), found.negatives.tolist(), found.positives.tolist()
        ([0.1, 0.5, 0.9], [2.0, 0.0], [1.0, 1.0])
        """
        ranges = ScoreRange(bins)
        engine, _, state = self._counts("score", of, "distribution")
        distribution: Distribution = in_rounds(engine.finalize, [(numbers_only(state), [ranges])])[0][0]
        return distribution
