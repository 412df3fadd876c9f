"""Attributions of an evaluation, computed from its states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.evaluation.attributed import Attribution
from streameval.evaluation.costs.ids import ids_of_states
from streameval.evaluation.costs.sweep import Sweep
from streameval.evaluation.result.counts import Counts
from streameval.metrics.contingency.attribution import GAIN, check_gain
from streameval.options import honoured
from streameval.options.kinds import of_column
from streameval.wording import few

if TYPE_CHECKING:
    from streameval.results import Source


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
            msg = "an attribution needs the counts of the run, which stay in its process: take it there"
            raise OptionError(msg)
        columns = [column for column in self._cluster_columns() if cluster in (None, column)]
        if len(columns) == 1:
            return columns[0]
        have = few(self._cluster_columns())
        msg = f"name the cluster column: {have}" if have else "no cluster column was evaluated: name one (--cluster)"
        raise OptionError(msg)

    def _cluster_columns(self) -> list[str]:
        return list(dict.fromkeys(column for family, column in self._states if family in ("classes", "cluster")))
