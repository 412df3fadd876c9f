"""Curves and distributions of an evaluation, for drawing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.evaluation.resampling import LEVEL
from streameval.evaluation.result.counts import Counts
from streameval.evaluation.result.curves import curves_of, with_bands
from streameval.evaluation.result.lookup import LookUp
from streameval.metrics.curves import curve_kind
from streameval.metrics.finalize import in_rounds, recalled
from streameval.metrics.scores.distribution import ScoreRange
from streameval.options.kinds import of_column
from streameval.results import same_slice, slice_name
from streameval.states.scores.missing import numbers_only

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.slices import SlicedStates
    from streameval.metrics.resampled import Resampled
    from streameval.results import Curve, Distribution


class Drawing(Counts, LookUp):
    """Curves and distributions that an evaluation computes from its states on request."""

    ci_level: float | None
    _threshold: Any
    _resampled: Mapping[tuple[str, str], Resampled]
    _sliced: SlicedStates | None

    def curve(self, name: str, of: str | None = None, slice: Mapping[str, Any] | None = None) -> Curve:
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
        values = recalled(state, metrics) or engine.finalize([(state, metrics)])[0]
        curve = kind.make(values, state, column, threshold)
        if slice is not None:
            return replace(curve, of=f"{column}{slice_name(slice)}")
        return self._banded([curve])[0]

    def _state_of(self, slice: Mapping[str, Any], family: str, column: str) -> Any:
        """The state of a column in a slice."""
        known = any(same_slice(one.slice, slice) for one in self.results if one.slice)
        if known and self._sliced is None:
            msg = "the curve of a slice needs the states of a run over files: evaluate them with by (--by)"
            raise OptionError(msg, "slice")
        state = self._sliced.state(family, column, slice) if known and self._sliced else None
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
        found = curves_of(self._engine, self._states, kinds, self._threshold)
        return tuple(self._banded(found))

    def _banded(self, curves: Sequence[Curve]) -> list[Curve]:
        """Add bands to the curves that have replicates."""
        if self._engine is None:
            return list(curves)
        level = self.ci_level or LEVEL
        return with_bands(self._engine, self._states, curves, self._resampled, self._threshold, level)

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
        kind = ScoreRange(bins)
        engine, _, state = self._counts("score", of, "distribution")
        found: Distribution = in_rounds(engine.finalize, [(numbers_only(state), [kind])])[0][0]
        return found
