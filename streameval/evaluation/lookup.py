"""Look up results by name: values, slices, bounds, sampling intervals, and differences of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.evaluation.intervals import concluded
from streameval.evaluation.request import LEVEL
from streameval.results import near_slice, same_slice, slice_table
from streameval.wording import canonical, hint

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from streameval.evaluation.intervals import Estimated
    from streameval.metrics.estimates import Estimate
    from streameval.results import Scalar


class LookUp:
    """Lookup of the results of an evaluation by metric, column and slice."""

    results: tuple[Scalar, ...]

    def _find(self, metric: str, of: str | None, slice: Any) -> Scalar:
        if not (slice is None or isinstance(slice, Mapping)):
            example = next((r.slice for r in self.results if r.slice), {"country": "DE"})
            raise OptionError(f"slice={slice!r} must map each slicing column to a value, such as {dict(example)!r}")
        results = [r for r in self.results if same_slice(r.slice, slice)]
        if not results:
            raise self._no_slice(slice or {})
        names = {metric, canonical(metric)}
        found = [r for r in results if r.metric in names and (r.of == of if of else r.baseline is None)]
        if len(found) == 1:
            return found[0]
        if found:
            columns = ", ".join(str(r.of) for r in found)
            msg = f"{metric} was computed for {columns}; say which with of="
        else:
            msg = f"{metric}{f' of {of}' if of else ''} was not computed; {_have(names, results)}"
        raise OptionError(msg)

    def _no_slice(self, given: Mapping[str, Any]) -> OptionError:
        return OptionError(_no_slice(given, [r.slice for r in self.results if r.slice]))

    def value(self, metric: str, of: str | None = None, slice: Mapping[str, Any] | None = None) -> float:
        """The value of a metric.

        Parameters
        ----------
        metric : str
            Name of the metric.
        of : str, optional
            The score or cluster column, if there are several.
        slice : mapping, optional
            A slice, such as ``{"country": "DE"}``; dates and times may be given as text. By default all rows.

        Raises
        ------
        OptionError
            If the metric was not computed, `of` is needed, or there is no such slice.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.8, 0.3], "country": ["DE", "DE", "FR", "FR"]})
        >>> result = evaluate(data, score="score", by="country")
        >>> result.value("roc_auc"), result.value("roc_auc", slice={"country": "FR"})
        (0.5, 0.0)
        """
        return self._find(metric, of, slice).value

    def slices(self, column: str | Sequence[str]) -> pa.Table:
        """A table with one row per slice of a slicing, such as ``"country"`` or ``"country,channel"``; largest first.

        A list names the columns of one slicing, such as ``["country", "channel"]``. The table has these columns,
        `rows`, `positives`, and the value of each metric, such as ``roc_auc[score]``; undefined values are null.

        Raises
        ------
        OptionError
            If there is no such slicing.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 1], "score": [0.1, 0.4, 0.8], "country": ["DE", "DE", None]})
        >>> evaluate(data, score="score", by="country", metrics="roc_auc").slices("country").to_pylist()[0]
        {'country': 'DE', 'rows': 2, 'positives': 1, 'roc_auc[score]': 1.0}
        """
        return slice_table(self.results, column)

    def interval(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, Any] | None = None,
    ) -> tuple[float, float]:
        """Bounds of the exact value, as (lower, upper); equal if the value is exact.

        Both are NaN if the value is undefined, or if it was sampled and has no bounds: the result's `bound` and
        `stderr` then describe its error, see `streameval.metrics.scores.sampled_gain`.

        Raises
        ------
        OptionError
            As `value`.
        """
        result = self._find(metric, of, slice)
        return result.lower, result.upper


def _have(names: Collection[str], results: Sequence[Scalar]) -> str:
    """The columns that a metric was computed for, in words; if there are none, all metrics with their columns."""
    columns = dict.fromkeys(str(r.of) for r in results if r.metric in names and r.baseline is None)
    if columns:
        return f"it was computed for {', '.join(columns)}"
    metrics: dict[str, list[str]] = {}
    for r in results:
        if r.baseline is None and str(r.of) not in (known := metrics.setdefault(r.metric, [])):
            known.append(str(r.of))
    return "there are: " + "; ".join(f"{metric} of {', '.join(columns)}" for metric, columns in metrics.items())


def _no_slice(given: Mapping[str, Any], slices: Sequence[Mapping[str, Any]]) -> str:
    """The message for a slice that does not exist."""
    slicings = list(dict.fromkeys(map(",".join, slices)))
    near = near_slice(given, slices)
    columns = ",".join(given)
    meant = f"did you mean {near!r}? " if near else "" if columns in slicings else hint(columns, slicings)
    there = "; ".join(slicings) or "nothing, since by was not given"
    return f"there is no slice {given!r}; {meant}there are slices by: {there}"


class Estimates(LookUp):
    """Sampling intervals and differences that an evaluation computes from its replicates."""

    estimates: Sequence[Estimated]
    ci_level: float | None

    def ci(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, Any] | None = None,
    ) -> tuple[float, float]:
        """The sampling interval of a result, as (lower, upper); see `ci` of `evaluate`.

        Both ends are NaN if there is no interval; the result's `ci_reason` then gives the reason.

        Raises
        ------
        OptionError
            As `value`, and if no intervals were requested.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa
        >>> from streameval import evaluate
        >>> label, noise = np.arange(2000) % 2, np.random.default_rng(0).normal(size=2000)
        >>> result = evaluate(pa.table({"label": label, "score": label + noise}), score="score", ci=0.95)
        >>> [round(end, 2) for end in result.ci("roc_auc")]
        [0.74, 0.78]
        """
        result = self._find(metric, of, slice)
        if result.ci_level is None:
            raise OptionError("no sampling intervals were asked for; evaluate with ci=0.95 (--ci)")
        ends = (math.nan if end is None else end for end in (result.ci_lower, result.ci_upper))
        return next(ends), next(ends)

    def difference(self, metric: str, a: str, b: str, margin: float | None = None) -> Scalar:
        """The difference of a metric between two columns, b − a, paired over the same units.

        Parameters
        ----------
        metric : str
            Name of the metric.
        a, b : str
            Two score columns or two cluster columns; `a` is the baseline.
        margin : float, optional
            Differences within ± `margin` do not matter; the verdict is ``equivalent`` if the difference is shown to be
            within.

        Returns
        -------
        Scalar
            With ``of="b − a"``, `stderr`, `ci_lower`, `ci_upper`, `verdict`, and `p_value` of this comparison alone.

        Raises
        ------
        OptionError
            If the metric was not computed for both columns, or no intervals were requested.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa
        >>> from streameval import evaluate
        >>> label, noise = np.arange(2000) % 2, np.random.default_rng(0).normal(size=(2, 2000))
        >>> table = pa.table({"label": label, "v1": label + noise[0], "v2": 2 * label + noise[1]})
        >>> found = evaluate(table, score=["v1", "v2"], ci=0.95).difference("roc_auc", "v1", "v2")
        >>> found.of, round(found.value, 2), found.verdict
        ('v2 − v1', 0.17, 'better')
        """
        one, other = (self._estimate(metric, of, paired=True) for of in (b, a))
        return concluded(one.minus(other), self.ci_level or LEVEL, margin)

    def _estimate(self, metric: str, of: str | None, *, paired: bool = False) -> Estimate:
        """The estimate of a result; with `paired`, the one for differences."""
        name = self._find(metric, of, None).metric
        found = [e.paired if paired else e.own for e in self.estimates]
        found = [e for e in found if (e.scalar.metric, e.scalar.of) == (name, of)]
        if not found:
            raise OptionError("no sampling intervals were asked for; evaluate with ci=0.95 (--ci)")
        return found[0]
