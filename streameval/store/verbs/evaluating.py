"""Verbs that evaluate what a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.options import refuse
from streameval.options.kinds import texts
from streameval.store import query
from streameval.store.attribution import ATTRIBUTED, attribute
from streameval.store.evaluate import evaluate
from streameval.store.planned import FOLDING, planned
from streameval.store.verbs import several

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from streameval.evaluation.attributed import Attribution
    from streameval.evaluation.result import Evaluation
    from streameval.store.context import StoreContext
    from streameval.store.results.reading import Reading

__all__ = ["Evaluating"]


class Evaluating:
    """What evaluates a store."""

    _context: StoreContext

    def evaluate(
        self,
        partition: str | Sequence[str] = (),
        *,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        against: str | None = None,
        **options: Any,
    ) -> Evaluation:
        """Evaluate all partitions, or some, from their states.

        The numbers equal those of `streameval.evaluate` on their files, bit for bit. Exceptions are the estimates,
        quantiles and ``agc_approx``, which come from the digests of the nights. Evaluation takes time proportional to
        the stored keys. Results are cached until the ledger changes.

        Parameters
        ----------
        partition : str or sequence of str
            Names of partitions.
        since, until : str or date, optional
            First and last date, as the names hold them; a month means all of it.
        last : int, optional
            Only the last `last` of these.
        as_of : str, int or date, optional
            Evaluate the store as it was at a version, date or time.
        against : str, optional
            Also compare with the nights of a span of dates, such as ``"2026-01-01..2026-01-07"``, paired by the units
            that both have. With ``"rest"`` each of the 100 slices of `by` with the most rows, among those that the
            store keeps, is compared with all other rows.
        **options
            Options of `streameval.evaluate`: ``metrics, truncate, aul_threshold, assignment_cells, at, quantiles``
            in place of the store's own, ``score, cluster, sketch`` to select some of its columns, ``by`` for each
            slice that the store keeps, or of each value of a key in the names of the partitions, such as
            ``by="night"``, and ``where`` for the rows of some of the slices that it keeps.

        Raises
        ------
        OptionError
            If the states of the store cannot honour an option, such as another `pos_label`.
        """
        named = several(partition)
        selection = {"partition": named, "since": since, "until": until, "last": last, "against": against}
        return evaluate(self._context, as_of, selection, options)

    def attribute(
        self,
        partition: str | Sequence[str] = (),
        *,
        cluster: str | None = None,
        data: Any = None,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        **options: Any,
    ) -> Attribution:
        """Name the clusters, classes and slices that lower the score of all or some partitions, from their states.

        The tables equal those of `streameval.attribute` on the files. States hold ids of 64 bits; without `data`, other
        ids are shown as hashes, such as ``#3f2a…``.

        Parameters
        ----------
        partition, since, until, last, as_of
            As `evaluate`.
        cluster : str, optional
            The cluster column, for the costs of clusters and classes.
        data : path, URI, or list of those, optional
            The files of these partitions: the texts of hashed ids and the examples are read from them.
        **options
            Options of `streameval.attribute`: ``classes, label, metric, aul_threshold, top, examples, examples_per``;
            ``score, by, ci, unit`` rank the slices that the store keeps, or keys in the names of the partitions. By
            default all tables of the cluster column that the store has states for.

        Raises
        ------
        OptionError
            If the store does not keep the columns, or examples are asked for without data.
        """
        for name in options:
            if name not in ATTRIBUTED:
                refuse("attribute", name, ATTRIBUTED, "of a store, ")
        named = several(partition)
        selection = {"partition": named, "since": since, "until": until, "last": last}
        return attribute(self._context, data, as_of, selection, {"cluster": cluster, **options})

    def report(
        self,
        partition: str | Sequence[str] = (),
        *,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        **options: Any,
    ) -> str:
        """One page on the store, as the text of a self-contained HTML file.

        It shows the results of `evaluate`, the first metric of each column night by night, failing and incomplete
        nights, and the judgements of rules.

        Parameters
        ----------
        partition, since, until, last, as_of, **options
            As `evaluate`.

        Raises
        ------
        OptionError
            As `evaluate`.
        """
        named = several(partition)
        selection = {"partition": named, "since": since, "until": until, "last": last}
        return evaluate(self._context, as_of, selection, options).to_html()

    def history(
        self,
        metric: str | Sequence[str],
        of: str | Sequence[str] | None = None,
        *,
        cumulative: bool = True,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        by: str | Sequence[str] = (),
        ci: float | None = None,
    ) -> Any:
        """A metric of each night, and of all nights up to each; or several metrics of several columns in one table.

        The update computes the values of single nights. Cumulative values are computed on the first request, each in
        time proportional to the stored keys, and cached until a night before them changes.

        Parameters
        ----------
        metric, of : str or sequence of str
            Name of the metric, and its column if there are several. With a sequence of either, a table of all these
            metrics of all these columns, by default of all that have them.
        cumulative : bool
            Also give the values over all nights from the first of those chosen.
        since, until, last, as_of
            As `evaluate`.
        by : str or sequence of str
            Also each slice that the store keeps, such as ``"country"``: its values night by night, most rows first.
        ci : float, optional
            Level of sampling intervals, such as 0.95, as `evaluate`; by default that of the store, if it has one.

        Returns
        -------
        History, or Histories if `metric` or `of` is a sequence

        Raises
        ------
        OptionError
            If there is no such metric, or the level is none.
        """
        selection = {"since": since, "until": until, "last": last}
        if by or not isinstance(metric, str) or not (of is None or isinstance(of, str)):
            named = {"metric": metric, "of": of, "by": by or None}
            metrics, columns, slicings = (texts(name, given) for name, given in named.items())
            selected = metrics, columns, as_of, selection
            return query.histories(self._context, *selected, cumulative=cumulative, by=slicings, ci=ci)
        return query.history(self._context, metric, of, as_of, selection, cumulative=cumulative, ci=ci)

    def plan(self, verb: str, **asked: Any) -> Reading:
        """What a verb would read and keep with these arguments.

        ``show``, ``history``, ``check``, ``diagnose``, ``attribute`` and ``info`` read states, which the ledger lists;
        ``update``, ``replace`` and ``add`` read ``data``, whose footers are asked.

        Raises
        ------
        OptionError
            As the verb, or if the verb is unknown.
        """
        if verb in FOLDING:
            return planned(self._context, verb, asked)
        if verb not in query.READING:
            msg = f"verb={verb!r} must be one of {', '.join((*query.READING, *FOLDING))}"
            raise OptionError(msg)
        return query.plan(self._context, verb, asked)
