"""Tables from the states of an evaluation: group values, confusion matrices, operating points, attributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streameval.arrays.contingency import ConfusionMatrix2
from streameval.errors import OptionError
from streameval.evaluation.cost_tables import attribute_states, ids_of
from streameval.evaluation.families import FAMILIES
from streameval.evaluation.intervals import Estimated, conclude
from streameval.evaluation.request import LEVEL
from streameval.kinds import of_column
from streameval.metrics.catalogue import usual
from streameval.metrics.contingency.attribution import GAIN, check_gain
from streameval.metrics.finalize import in_rounds
from streameval.metrics.scores.group_means import GroupMean, has_mean
from streameval.metrics.scores.threshold_tables import ConfusionAt, TablesAt, point_table, pointed
from streameval.metrics.selection import Selection
from streameval.options import verb_options
from streameval.results import Scalar, Source, near_slice, same_slice, slice_table
from streameval.states.scores.types import check_threshold
from streameval.wording import canonical, few, hint

if TYPE_CHECKING:
    import pyarrow as pa

    from streameval.engine import Engine
    from streameval.evaluation.cost_tables import Attribution
    from streameval.metrics.estimates import Estimate
    from streameval.states.protocol import State


class Tables:
    """Tables and attributions that an evaluation computes from its states on request."""

    results: tuple[Scalar, ...]
    source: Source
    _states: Mapping[tuple[str, str], State]
    _engine: Engine | None
    _threshold: Any

    def _counts(self, family: str, of: str | None, what: str, default: str = "") -> tuple[Engine, str, State]:
        """The engine, the requested or only column of a family, and its state.

        `what` is the table and `default` the metric that builds its state; messages name both.

        Raises
        ------
        OptionError
            If there is no such column, `of` is needed, or the states are in another process.
        """
        if self._engine is None:
            raise OptionError(f"the {what} needs the counts of the run, which stay in its process: take it there")
        have = [column for name, column in self._states if name == family]
        columns = [column for column in have if of in (None, column)]
        if len(columns) == 1:
            return self._engine, columns[0], self._states[family, columns[0]]
        if have:
            raise OptionError(f"name the {family} column of the {what} with of=; there are: {', '.join(have)}")
        why = f"no {family} column was evaluated: name one (--{family})"
        if any(FAMILIES[name].column == family for name, _ in self._states):
            why = f"none of its metrics was asked for: add {default or usual(family)} to metrics"
        raise OptionError(f"there is no {what}, since {why}")

    def columns(self, family: str) -> tuple[str, ...]:
        """The columns of a family, such as ``score`` or ``cluster``, whose states are available in this process.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> evaluate(pa.table({"label": [0, 1], "score": [0.1, 0.9]}), score="score").columns("score")
        ('score',)
        """
        return tuple(column for name, column in self._states if name == family and self._engine is not None)

    def group_values(self, metric: str, of: str | None = None) -> pa.Table:
        """Deciles of the values of the groups of `mean_over`, each group counted once.

        The columns are `share`, from 0 to 1, and `value`: the smallest value that this share of the groups does not
        exceed. Groups without both classes are left out. Exact. The results of the means have the same values in
        `group_deciles`; for other metrics the states of the evaluation are read once or twice more.

        Raises
        ------
        OptionError
            If there are no groups, `of` is needed, or the metric has no mean over groups.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.2, 0.3, 0.9], "user": ["a", "a", "b", "b"]})
        >>> evaluate(data, score="score", mean_over="user").group_values("roc_auc")["value"].to_pylist()[4:7]
        [0.0, 0.0, 1.0]
        """
        import pyarrow as pa

        means = [one for one in self.results if one.mean_over is not None and of in (None, one.of)]
        named = [one for one in means if one.metric == canonical(metric)]
        deciles = (named[0] if len(named) == 1 else self._group_mean(metric, of)).group_deciles or ()
        columns = {"share": [i / 10 for i in range(len(deciles))], "value": deciles}
        return pa.table(columns, schema=pa.schema({name: pa.float64() for name in columns}))

    def _group_mean(self, metric: str, of: str | None) -> Scalar:
        """The mean of a metric that is not among the results."""
        if self._engine is not None and not any(name == "groups" for name, _ in self._states):
            raise OptionError(f"there are no groups, so {metric} has no values by group: name their column (mean_over)")
        engine, _, state = self._counts("groups", of, "table of group values", metric)
        named = [each for each in Selection(("score",), (canonical(metric),)).of("score") if has_mean(each)]
        if len(named) != 1:
            raise OptionError(
                f"{metric} has no mean over groups; there are roc_auc, average_precision and precision@k=N"
            )
        mean: Scalar = in_rounds(engine.finalize, [(state, [GroupMean(named[0], state.spec.groups)])])[0][0]
        return mean

    def confusion(self, threshold: float, of: str | None = None) -> ConfusionMatrix2:
        """The 2×2 confusion matrix of a score; scores at or above the threshold are predicted positive.

        Exact; the states of the evaluation are read once more. With ``approx`` the threshold must be an edge of the
        histogram.

        Raises
        ------
        OptionError
            If `of` is needed, or the threshold is within a bin.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score").confusion(0.4)
        ConfusionMatrix2(rows=[[1, 1], [1, 1]])
        """
        engine, _, state = self._counts("score", of, "2×2 table")
        metric = ConfusionAt(threshold)
        check_threshold(metric.threshold, state.spec.type, state.spec.column)
        return ConfusionMatrix2(*engine.finalize([(state, [metric])])[0][0])

    def operating_points(self, of: str | None = None) -> pa.Table:
        """A table with one row for each operating point (`at`) and each metric with a threshold, such as `f1_max`.

        The columns are `of`, `at` (the requested point), `threshold`, `tpr`, `fpr`, `precision`, `recall`, `f1`, `mcc`,
        `share` (of flagged rows; with weights, of the weight), `flagged` (rows), `tp`, `fp`, `fn`, `tn`; the expected
        cost per row, such as ``cost@fp=1,fn=10``, for the costs of each requested ``cost_min``; then `metric` with its
        `value`, its bounds `lower` and `upper`, whether it is `exact`, and the `reason` for nulls, such as the nearest
        point that can be reached. Rows at or above the threshold are flagged. The states of the evaluation are read
        once more.

        With ``approx`` a threshold is an edge of a bin, where the counts are exact; `lower` and `upper` bound the value
        at the best of all thresholds. A ``threshold=T`` within a bin has no counts.

        Parameters
        ----------
        of : str, optional
            A score column; all by default.

        Raises
        ------
        OptionError
            If there is no such score, or its states are in another process.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> found = evaluate(data, score="score", at=["recall=0.9", "fpr=0"], metrics="f1_max").operating_points()
        >>> found.select(["at", "threshold", "precision", "recall", "flagged"]).to_pylist()[1]
        {'at': 'recall=0.9', 'threshold': 0.35, 'precision': 0.6666666666666666, 'recall': 1.0, 'flagged': 3}
        """
        columns = [of] if of is not None else self.columns("score") or [None]
        counts = [self._counts("score", column, "table of operating points") for column in columns]
        results = [pointed(self.results, column) for _, column, _ in counts]
        at = [tuple({r.threshold: None for r in rows.values() if r.threshold is not None}) for rows in results]
        jobs = [(state, [TablesAt(thresholds)]) for (*_, state), thresholds in zip(counts, at, strict=True)]
        values = counts[0][0].finalize(jobs)
        points = []
        for (_, column, _), rows, thresholds, (tables,) in zip(counts, results, at, values, strict=True):
            by_threshold = dict(zip(thresholds, tables, strict=True)) | {None: None}
            points += [(column, name, result, by_threshold[result.threshold]) for name, result in rows.items()]
        return point_table(points, self.results)

    def attribution(self, cluster: str | None = None, *, metric: str = GAIN, top: int = 20) -> Attribution:
        """Rank the clusters and classes that cost most, from the states of the evaluation.

        Equals `streameval.attribute` on the same data, but the data are not read again: there are no examples, and
        string ids appear as hashes.

        Parameters
        ----------
        cluster : str, optional
            The cluster column, if there are several.
        metric : str
            The metric of the gains, a pair or B-cubed metric; the adjusted Rand index by default.
        top : int
            Maximum number of clusters and classes in each table.

        Raises
        ------
        OptionError
            If `cluster` is needed or was not evaluated, the metric has no gains, `top` is not from 1 to 1,000,000, ids
            are scoped to partitions, or the evaluation was computed in another process.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"campaign": [1, 1, 1, 2, 2], "cluster": [7, 7, 8, 7, 9]})
        >>> found = evaluate(data, cluster="cluster", classes="campaign", metrics=["v_measure"]).attribution()
        >>> found.merges["cluster"].to_pylist(), found.totals["missed_pairs"]
        ([7], 3)
        """
        check_gain(metric)
        top = verb_options("attribute")["top"].plain(top)
        if self._engine is None:
            raise OptionError("an attribution needs the counts of the run, which stay in its process: take it there")
        columns = [column for column in self._cluster_columns() if cluster in (None, column)]
        if len(columns) != 1:
            have = few(self._cluster_columns())
            raise OptionError(
                f"name the cluster column: {have}" if have else "no cluster column was evaluated: name one (--cluster)"
            )
        [column] = columns
        if lacking := self._lacking(column):
            raise OptionError(lacking)
        states = self._tables(column)
        clusters, classes = ids_of(states)
        options = {"metric": metric, "top": top, "aul_threshold": of_column(self._threshold, column)}
        options |= {"examples": None, "examples_per": 0}
        facts: dict[str, Any] = {"options": {"cluster": column}, "source": self.source}
        return attribute_states(self._engine, options, states, clusters, classes, None, **facts)

    def attributions(self, top: int = 20) -> tuple[Attribution, ...]:
        """The attributions of all cluster columns that have classes or labels for all rows; see `attribution`."""
        return tuple(
            self.attribution(column, top=top) for column in self._cluster_columns() if not self._lacking(column)
        )

    def _tables(self, column: str) -> dict[str, State]:
        """The contingency state of a column, and its cluster state if all rows have labels."""
        states = {family: self._states[family, of] for family, of in self._states if of == column}
        return {
            family: states[family]
            for family in ("classes", "cluster")
            if family in states and (family == "classes" or not states[family].spec.traits.unlabelled)
        }

    def _lacking(self, column: str) -> str:
        """The reason why a column has no attribution; empty if it has one."""
        states = self._tables(column)
        if self._engine is None or not states:
            return (
                f"nothing can be attributed to {column}: its clusters have neither classes nor the labels of all rows"
            )
        if next(iter(states.values())).spec.scope == "partition":
            return "ids belong to their partitions, whose names are with the data: use streameval.attribute"
        return ""

    def _cluster_columns(self) -> list[str]:
        return list(dict.fromkeys(column for family, column in self._states if family in ("classes", "cluster")))


_NO_INTERVALS = "no sampling intervals were asked for; evaluate with ci=0.95 (--ci)"


class LookUp:
    """Lookup of the results of an evaluation, their sampling intervals and differences, by metric, column and slice."""

    results: tuple[Scalar, ...]
    ci_level: float | None
    _estimates: Sequence[Estimated]
    _again: Callable[[], LookUp] | None  # computes a cached evaluation with its replicates, once they are needed

    @property
    def estimates(self) -> Sequence[Estimated]:
        """The results of all rows with their replicates, in the order of `results`; see `Evaluation`."""
        return self._again().estimates if self._again else self._estimates

    def _find(self, metric: str, of: str | None, slice: object, label_class: str | None = None) -> Scalar:
        if not (slice is None or isinstance(slice, Mapping)):
            example = next((r.slice for r in self.results if r.slice), {"country": "DE"})
            raise OptionError(f"slice={slice!r} must map each slicing column to a value, such as {dict(example)!r}")
        results = [r for r in self.results if same_slice(r.slice, slice)]
        if not results:
            raise self._no_slice(slice or {})
        names = {metric, canonical(metric)}
        if label_class is not None:
            of = None if of and "{class}" in of else of
            classes = dict.fromkeys(r.label_class for r in results if r.label_class)
            if label_class not in classes:
                have = f"there are {', '.join(classes)}" if classes else "score names no columns of classes"
                raise OptionError(f"label_class={label_class!r} was not evaluated; {have}")
            results = [r for r in results if r.label_class == label_class]
        matches = [r for r in results if r.metric in names and (r.of == of if of else r.baseline is None)]
        if len(matches) > 1:
            columns = ", ".join(str(r.of) for r in matches)
            raise OptionError(f"{metric} was computed for {columns}; say which with of=")
        if not matches:
            raise OptionError(f"{metric}{f' of {of}' if of else ''} was not computed; {_have(names, results)}")
        return matches[0]

    def _no_slice(self, given: Mapping[str, Any]) -> OptionError:
        """The error for a slice that does not exist."""
        slices = [r.slice for r in self.results if r.slice]
        slicings, columns = list(dict.fromkeys(map(",".join, slices))), ",".join(given)
        near = near_slice(given, slices)
        meant = f"did you mean {near!r}? " if near else "" if columns in slicings else hint(columns, slicings)
        there = "; ".join(slicings) or "nothing, since by was not given"
        return OptionError(f"there is no slice {given!r}; {meant}there are slices by: {there}")

    def value(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, object] | None = None,
        label_class: str | None = None,
    ) -> float:
        """The value of a metric.

        Parameters
        ----------
        metric : str
            Name of the metric.
        of : str, optional
            The score or cluster column, if there are several.
        slice : mapping, optional
            A slice, such as ``{"country": "DE"}``; dates and times may be given as text. By default all rows.
        label_class : str, optional
            Of several classes, the one against the rest, or ``macro``, ``weighted`` or ``micro``.

        Raises
        ------
        OptionError
            If the metric was not computed, `of` is needed, or there is no such slice or class.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.8, 0.3], "country": ["DE", "DE", "FR", "FR"]})
        >>> result = evaluate(data, score="score", by="country")
        >>> result.value("roc_auc"), result.value("roc_auc", slice={"country": "FR"})
        (0.5, 0.0)
        """
        return self._find(metric, of, slice, label_class).value

    def slices(self, column: str | Sequence[str]) -> pa.Table:
        """A table with one row per slice of a slicing, such as ``"country"`` or ``"country,channel"``.

        The largest is first, but parts of times, dates and numbers between edges are in their own order. A list names
        the columns of one slicing, such as ``["country", "channel"]``. The table has these columns, `rows`,
        `positives`, and the value of each metric, such as ``roc_auc[score]``; undefined values are null.

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
        slice: Mapping[str, object] | None = None,
        label_class: str | None = None,
    ) -> tuple[float, float]:
        """Bounds of the exact value, as (lower, upper); equal if the value is exact.

        Both are NaN if the value is undefined, or if it was sampled and has no bounds: the result's `bound` and
        `stderr` then describe its error, see `streameval.metrics.scores.gain`.

        Raises
        ------
        OptionError
            As `value`.
        """
        result = self._find(metric, of, slice, label_class)
        return result.lower, result.upper

    def ci(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, object] | None = None,
        label_class: str | None = None,
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
        result = self._find(metric, of, slice, label_class)
        if result.ci_level is None:
            raise OptionError(_NO_INTERVALS)
        lower, upper = (math.nan if end is None else end for end in (result.ci_lower, result.ci_upper))
        return lower, upper

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
        return conclude(one.minus(other), self.ci_level or LEVEL, margin)

    def _estimate(self, metric: str, of: str | None, *, paired: bool = False) -> Estimate:
        """The estimate of a result; with `paired`, the one for differences."""
        name = self._find(metric, of, None).metric
        for estimate in (each.paired if paired else each.own for each in self.estimates):
            if (estimate.scalar.metric, estimate.scalar.of) == (name, of):
                return estimate
        raise OptionError(_NO_INTERVALS)


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
