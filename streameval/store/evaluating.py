"""The verbs that evaluate the nights of a store, and their forecasts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.options import honoured, refuse
from streameval.options.kinds import texts
from streameval.store.attribution import ATTRIBUTED, attribute
from streameval.store.changing import several
from streameval.store.evaluate import evaluate, store_source
from streameval.store.nights.history import Histories, History, Point
from streameval.store.nights.partitions import newest, select_entries
from streameval.store.nights.slices import slice_histories
from streameval.store.planned import plan
from streameval.wording import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from streameval.evaluation.costs.attributed import Attribution
    from streameval.evaluation.result import Evaluation
    from streameval.store.context import StoreContext
    from streameval.store.planned import Reading


class Evaluating:
    """The verbs that evaluate a store."""

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

        The results equal those of `streameval.evaluate` on the files, bit for bit, except for the estimates (quantiles
        and ``agc_approx``), which come from digests of the nights, and for intervals of rows without a unit, or with a
        null one, in files outside of Hive directories: a store numbers these rows in each night, `streameval.evaluate`
        in all files together. Evaluation takes time proportional to the stored keys. Results are cached until the
        ledger changes.

        Parameters
        ----------
        partition : str or sequence of str
            Names of partitions.
        since, until : str or date, optional
            First and last date in the names of the partitions, both included; a month stands for all its days.
        last : int, optional
            Only the last `last` of the selected partitions.
        as_of : str, int or date, optional
            Evaluate the store as it was at a version, date or time.
        against : str, optional
            Also compare with the nights of a span of dates, such as ``"2026-01-01..2026-01-07"``, paired by common
            units. With ``"rest"``, each of the 100 largest slices of `by` that the store keeps is compared with all
            other rows.
        **options
            Options of `streameval.evaluate`: ``metrics, truncate, aul_threshold, assignment_cells, at, clip, ci,
            quantiles`` override the store's own; ``baseline`` compares columns, but not clusterings by ``aul``, which
            needs the files (a store does not keep the units of each cluster); ``score, cluster, sketch`` select some
            of its columns. ``by`` adds the slices that the store keeps, or groups nights by a key in the names of the
            partitions, such as ``by="night"``. ``where`` selects rows by the columns of the slices that it keeps.

        Raises
        ------
        MissingInputError
            If no partition is selected.
        OptionError
            If the states of the store cannot honour an option, such as another `pos_label`.
        StoreError, FormatError
            If there is no store, or a file of it is missing or damaged.
        """
        selection = {"partition": several(partition), "since": since, "until": until, "last": last, "against": against}
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
        """Rank the clusters, classes and slices that cost most in all or some partitions, from their states.

        The tables equal those of `streameval.attribute` on the files. States hold integer ids, and hashes of other
        ids; without `data`, the latter are shown as hashes, such as ``#3f2a…``.

        Parameters
        ----------
        partition, since, until, last, as_of
            As `evaluate`.
        cluster : str, optional
            The cluster column, for the costs of clusters and classes.
        data : path, URI, or list of those, optional
            The files of these partitions, for the texts of hashed ids and for examples.
        **options
            Options of `streameval.attribute`: ``classes, label, metric, aul_threshold, top, examples, examples_per``.
            ``score, by, ci, unit`` rank the slices that the store keeps, or values of keys in the names of the
            partitions. By default, all tables of the cluster column for which the store has states.

        Raises
        ------
        OptionError
            If the store does not keep the columns, or examples are requested without data.
        """
        for name in options:
            if name not in ATTRIBUTED:
                refuse("attribute", name, ATTRIBUTED, "of a store, ")
        selection = {"partition": several(partition), "since": since, "until": until, "last": last}
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
        """The text of a self-contained HTML page on the store.

        It shows the results of `evaluate`, the first metric of each kind of column night by night, failing and
        incomplete nights, and the judgements of rules.

        Parameters
        ----------
        partition, since, until, last, as_of, **options
            As `evaluate`.

        Raises
        ------
        OptionError
            As `evaluate`.
        """
        return self.evaluate(partition, since=since, until=until, last=last, as_of=as_of, **options).to_html()

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
        """A metric of each night, and over all nights up to each; or several metrics and columns in one table.

        Updates compute the values of single nights. Cumulative values are computed on the first request, each in time
        proportional to the stored keys, and cached until an earlier night changes.

        Parameters
        ----------
        metric, of : str or sequence of str
            Name of the metric, and its column if there are several. If either is a sequence, the result is a table of
            all these metrics for all these columns, by default for all columns that have them.
        cumulative : bool
            Also compute the values over all nights from the first selected one up to each.
        since, until, last, as_of
            As `evaluate`.
        by : str or sequence of str
            Slicings that the store keeps, such as ``"country"``: adds the values of each slice night by night, largest
            slice first.
        ci : float, optional
            Level of sampling intervals, such as 0.95; by default that of the store, if it has one.

        Returns
        -------
        History, or Histories if `metric` or `of` is a sequence

        Raises
        ------
        OptionError
            If there is no such metric or slicing, or the level is not between 0 and 1.
        """
        level = honoured("history")["ci"].plain(ci)
        selection: dict[str, Any] = {"since": since, "until": until, "last": last}
        context = self._context
        snapshot, configuration = context.begun(as_of)
        entries, nightly = select_entries(snapshot.entries, **selection), context.nightly(snapshot, configuration)
        if isinstance(metric, str) and (of is None or isinstance(of, str)) and not by:
            pairs: list[tuple[str, str | None]] = [(canonical(metric), of)]
            named, slicings = {"metric": pairs[0][:1], "of": of, "ci": level}, None
        else:
            metrics, columns, slicings = texts("metric", metric), texts("of", of), texts("by", by or None)
            pairs = [pair for one in metrics for pair in nightly.named(one, columns)]
            named = {"metric": metrics, "of": columns, "by": slicings, "ci": level}
        failing = tuple(context.judgements().failing(entries, newest(snapshot.entries)))
        given = [name for name, value in named.items() if value]
        source = store_source("history", context.location.name, len(entries), selection, named, given)
        series = []
        for pair in dict.fromkeys(pairs):
            nights = nightly.nights(entries, *pair, level)
            totals: Sequence[Any] = nightly.cumulative(entries, *pair, level) if cumulative else [None] * len(nights)
            rows = zip(entries, nights, totals, strict=True)
            points = tuple(Point(entry.partition, night, total, entry.incomplete) for entry, night, total in rows)
            series.append(History(pair[0], nights[0].of, points, failing, source))
        if as_of is None:
            nightly.write()
        if slicings is None:
            return series[0]
        asked = [(one.metric, *nightly.column(one.metric, one.of, level), one) for one in series]
        for text in slicings:
            series += context.computed(partial(slice_histories, text=text, asked=asked), nightly.stored.of(*entries))
        return Histories(tuple(series))

    def plan(self, verb: str, **asked: Any) -> Reading:
        """Forecast what a verb would read and keep with these arguments.

        ``show``, ``history``, ``check``, ``diagnose``, ``attribute`` and ``info`` read states, whose sizes are in the
        ledger; ``update``, ``replace`` and ``add`` read ``data``, of which only footers are read here.

        Raises
        ------
        OptionError
            If the verb is unknown, or would raise it for these arguments.
        """
        return plan(self._context, verb, asked)
