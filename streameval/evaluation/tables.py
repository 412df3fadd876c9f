"""Tables from the states of an evaluation: group values, confusion matrices, operating points, attributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.arrays.contingency.table import ConfusionMatrix2
from streameval.errors import OptionError
from streameval.evaluation.costs.attributed import Attribution
from streameval.evaluation.costs.sweep import Sweep
from streameval.evaluation.costs.tables import ids_of_states
from streameval.evaluation.families import FAMILIES
from streameval.kinds import of_column
from streameval.metrics.catalogue import usual
from streameval.metrics.contingency.attribution import GAIN, check_gain
from streameval.metrics.finalize import in_rounds
from streameval.metrics.scores.group_means import GroupMean, has_mean
from streameval.metrics.scores.threshold_tables import ConfusionAt, TablesAt, point_table, pointed
from streameval.metrics.selection import Selection
from streameval.options import honoured
from streameval.states.scores.types import check_threshold
from streameval.wording import canonical, few

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from streameval.engine import Engine
    from streameval.results import Scalar, Source


class Counts:
    """Tables that an evaluation computes from its states on request."""

    results: tuple[Scalar, ...]
    _states: Mapping[tuple[str, str], Any]
    _engine: Engine | None

    def _counts(self, family: str, of: str | None, what: str, default: str = "") -> tuple[Engine, str, Any]:
        """The engine, the requested or only column of a family, and its state.

        `what` is the table and `default` the metric that builds its state; messages name both.

        Raises
        ------
        OptionError
            If there is no such column, `of` is needed, or the states are in another process.
        """
        have = [column for name, column in self._states if name == family]
        found = [column for column in have if of in (None, column)]
        if len(found) == 1 and self._engine is not None:
            return self._engine, found[0], self._states[family, found[0]]
        if self._engine is None:
            msg = f"the {what} needs the counts of the run, which stay in its process: take it there"
        elif have:
            msg = f"name the {family} column of the {what} with of=; there are: {', '.join(have)}"
        elif any(FAMILIES[name].column == family for name, _ in self._states):
            lacking = default or usual(family)
            msg = f"there is no {what}, since none of its metrics was asked for: add {lacking} to metrics"
        else:
            msg = f"there is no {what}, since no {family} column was evaluated: name one (--{family})"
        raise OptionError(msg)

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
        found = [one for one in means if one.metric == canonical(metric)]
        deciles = (found[0] if len(found) == 1 else self._group_mean(metric, of)).group_deciles or ()
        columns = {"share": [i / 10 for i in range(len(deciles))], "value": deciles}
        return pa.table(columns, schema=pa.schema({name: pa.float64() for name in columns}))

    def _group_mean(self, metric: str, of: str | None) -> Scalar:
        """The mean of a metric that is not among the results."""
        if self._engine is not None and not any(name == "groups" for name, _ in self._states):
            raise OptionError(f"there are no groups, so {metric} has no values by group: name their column (mean_over)")
        engine, _, state = self._counts("groups", of, "table of group values", metric)
        found = [each for each in Selection(("score",), (canonical(metric),)).of("score") if has_mean(each)]
        if len(found) != 1:
            raise OptionError(
                f"{metric} has no mean over groups; there are roc_auc, average_precision and precision@k=N"
            )
        mean: Scalar = in_rounds(engine.finalize, [(state, [GroupMean(found[0], state.spec.groups)])])[0][0]
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
        what = "table of operating points"
        columns = [of] if of is not None else self.columns("score")
        counted = [self._counts("score", column, what) for column in columns]
        counted = counted or [self._counts("score", None, what)]
        found = [pointed(self.results, column) for _, column, _ in counted]
        at = [tuple({r.threshold: None for r in rows.values() if r.threshold is not None}) for rows in found]
        jobs = [(state, [TablesAt(thresholds)]) for (*_, state), thresholds in zip(counted, at, strict=True)]
        listed = []
        values = counted[0][0].finalize(jobs)
        for (_, column, _), rows, thresholds, (tables,) in zip(counted, found, at, values, strict=True):
            given = dict(zip(thresholds, tables, strict=True))
            listed += [(column, asked, r, given[r.threshold] if r.threshold is not None else None)
                       for asked, r in rows.items()]  # fmt: skip
        return point_table(listed, self.results)


class Costs(Counts):
    """Attributions that an evaluation computes from its states on request."""

    source: Source
    _threshold: Any

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
        top = honoured("attribute")["top"].plain(top)
        column = self._clustered(cluster)
        engine = self._engine
        if engine is None or self._lacking(column):
            raise OptionError(self._lacking(column))
        table, sizes = self._tables(column)
        given = [state for state in (table, sizes) if state is not None]
        clusters, classes = ids_of_states(column, table, sizes)
        options = {"metric": metric, "top": top, "aul_threshold": of_column(self._threshold, column)}
        options |= {"examples": None, "examples_per": 0}
        result = Attribution(
            given[0].totals().rows, None, None, None, None, {}, options={"cluster": column}, source=self.source
        )
        return Sweep(options, engine, clusters, classes, None).added(result, table, sizes)

    def attributions(self, top: int = 20) -> tuple[Attribution, ...]:
        """The attributions of all cluster columns that have classes or labels for all rows; see `attribution`."""
        return tuple(
            self.attribution(column, top=top) for column in self._cluster_columns() if not self._lacking(column)
        )

    def _tables(self, column: str) -> tuple[Any, Any]:
        """The contingency state of a column, and its cluster state if all rows have labels; either may be None."""
        table, sizes = (self._states.get((family, column)) for family in ("classes", "cluster"))
        return table, None if sizes is not None and sizes.spec.unlabelled else sizes

    def _lacking(self, column: str) -> str:
        """The reason why a column has no attribution; empty if it has one."""
        given = [state for state in self._tables(column) if state is not None]
        if self._engine is None or not given:
            return (
                f"nothing can be attributed to {column}: its clusters have neither classes nor the labels of all rows"
            )
        if given[0].spec.scope == "partition":
            return "ids belong to their partitions, whose names are with the data: use streameval.attribute"
        return ""

    def _clustered(self, cluster: str | None) -> str:
        """The requested cluster column, or the only one; raises `OptionError` if it is ambiguous."""
        if self._engine is None:
            raise OptionError("an attribution needs the counts of the run, which stay in its process: take it there")
        columns = [column for column in self._cluster_columns() if cluster in (None, column)]
        if len(columns) == 1:
            return columns[0]
        have = few(self._cluster_columns())
        raise OptionError(
            f"name the cluster column: {have}" if have else "no cluster column was evaluated: name one (--cluster)"
        )

    def _cluster_columns(self) -> list[str]:
        return list(dict.fromkeys(column for family, column in self._states if family in ("classes", "cluster")))
