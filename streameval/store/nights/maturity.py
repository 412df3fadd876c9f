"""Maturity: what a metric of a night was while its labels arrived.

An open night is folded anew from its rows with the statements up to each age, by the ordinary builders, so that each
value is exact. When a night closes, the values of the store's own metrics at those `AGES` that it reached go into its
facts, and survive the rows. Ages are reached by nights and labels that arrive, not by the calendar. Pooled values of
all nights cannot be computed from values alone; their mean is given instead.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

from streameval import __version__
from streameval.errors import DataError, OptionError
from streameval.evaluation.request import NO_INTERVALS
from streameval.report.terminal import Shown, escape_markup, table
from streameval.results import Source
from streameval.saving import Saved
from streameval.store.files.entries import Aged
from streameval.store.nights.fold import Folding, dependent_states
from streameval.store.nights.merge import Column, Nights, finalize_nights
from streameval.store.nights.open_nights import OPEN, OpenNight, newest_day
from streameval.store.nights.partitions import select_entries
from streameval.store.nights.statements import LabelsByAge, reach, read_others, read_statements
from streameval.wording import canonical, digits, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from matplotlib.axes import Axes
    from rich.console import RenderableType

    from streameval.engine.threads import ThreadEngine
    from streameval.evaluation.protocol import MetricRequest
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.labels import LabelCounts
    from streameval.states.late import LateLabels
    from streameval.states.protocol import State, StoredSpec
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry

AGES = (1, 3, 7, 14, 30, 60, 90)  # days, of the values that a closed night keeps
_LABELLED = ("score", "cluster")  # families of columns whose metrics depend on labels
ALL = "all"  # in place of a night: the nights that reached the largest age
_NONE = "no night has reached an age; name smaller ages (--ages)"


class MaturityRow(NamedTuple):
    """A night, or ``all`` nights, with the labels up to an age.

    Attributes
    ----------
    night : name of the partition
    age : days after the end of the night
    labelled : share of the rows that had a label, in [0, 1]
    positives : share of these rows that are positive; NaN without labels
    value : the metric; NaN if it is not defined, or not kept of a closed night
    change : the metric with all labels of today less `value`
    """

    night: str
    age: int
    labelled: float
    positives: float
    value: float
    change: float


@dataclass(frozen=True, repr=False)
class Maturity(Shown, Saved):
    """A metric of each night with the labels up to some ages.

    Attributes
    ----------
    metric, of : the metric and its column
    ages : the ages in days, in ascending order
    rows : by night and age, only ages that a night has reached; then those of ``all`` nights that reached the largest
        age: shares of their rows together, and means of the values and changes of single nights
    nights : number of nights behind these means, the same at each age: those with a value at every age
    basis : ``labelled rows`` if values are of these alone; None if they count every row
    source : where the values come from
    """

    metric: str
    of: str
    ages: tuple[int, ...]
    rows: tuple[MaturityRow, ...]
    nights: int
    basis: str | None
    source: Source = field(default_factory=Source, compare=False)

    def to_arrow(self) -> pa.Table:
        """A table with the columns of `MaturityRow`; NaN is null."""
        import pyarrow as pa

        numbers = MaturityRow._fields[2:]
        columns = {"night": pa.array([row.night for row in self.rows], pa.string())}
        columns["age"] = pa.array([row.age for row in self.rows], pa.int64())
        values = zip(*(row[2:] for row in self.rows), strict=True) if self.rows else ((),) * len(numbers)
        columns |= {
            name: pa.array(own, pa.float64(), from_pandas=True) for name, own in zip(numbers, values, strict=True)
        }
        return pa.table(columns)

    def to_dict(self) -> dict[str, object]:
        """Plain values; NaN becomes None."""
        facts = {"streameval": __version__, "metric": self.metric, "of": self.of}
        basis = {"basis": self.basis} if self.basis else {}
        return {**facts, **basis, "nights": self.nights, "rows": self.to_arrow().to_pylist()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the rows of ``all`` nights rest on, or why they are missing."""
        if not self.rows:
            return (_NONE,)
        if self.rows[-1].night != ALL:
            return (f"no night has reached {plural(self.ages[-1], 'day')}, so there is no row of all nights",)
        if not self.nights:
            return ("no night has a value at every age, so there is no mean of all nights; name other ages (--ages)",)
        return (f"the means of all nights are of {plural(self.nights, 'night')} with a value at every age",)

    def render(self, *, plain: bool = False) -> RenderableType:
        """The rows, and the notes; a plain table has no rules."""
        from rich.console import Group

        heads, rows = MaturityRow._fields, self._texts()
        return Group(*[table(heads, rows, heads[1:], plain=plain)] * bool(rows), *map(escape_markup, self.notes))

    def to_html(self) -> str:
        """The text of a self-contained HTML page."""
        from streameval.report.elements import html_of
        from streameval.report.nights import maturity_page

        title = f"{self.metric} of {self.of} by age of labels"
        return html_of(maturity_page(title, MaturityRow._fields, self._texts(), self.notes, self.source))

    def _texts(self) -> list[tuple[str, ...]]:
        return [(row.night, str(row.age), *("" if x != x else digits(x) for x in row[2:])) for row in self.rows]

    def plot(self, save_to: str | Path | None = None) -> Axes:
        """Plot the values over the ages, a line for each night; returns the matplotlib Axes.

        Raises
        ------
        OptionError
            If no night has reached an age, or the file cannot be written.
        """
        from streameval.plots.comparisons import plot_series

        if not self.rows:
            raise OptionError(f"maturity: {_NONE}", "ages")
        ages = sorted({row.age for row in self.rows})
        lines = {}
        for night, rows in groupby(self.rows, lambda row: row.night):
            values = {row.age: row.value for row in rows}
            lines[night] = [(values.get(age, math.nan),) * 3 for age in ages]
        names = [f"days after the night={age}" for age in ages]
        return plot_series(names, lines, f"{self.metric} of {self.of} by age of labels", save_to=save_to)


def maturity_of(context: StoreContext, metric: str, of: str | None, ages: Sequence[int]) -> Maturity:
    """The maturity of a metric; see `streameval.Store.maturity`."""
    snapshot, configuration = context.begun()
    if configuration.late is None:
        raise OptionError(f"maturity: {configuration.no_late_labels}")
    nightly, metric = context.nightly(snapshot, configuration), canonical(metric)
    column = nightly.column(metric, of)
    if column.w.group not in _LABELLED:
        raise OptionError(f"maturity: {metric} of {column.w.of} does not depend on labels; name a metric that does")
    entries = [entry for entry in select_entries(snapshot.entries) if entry.rows] if snapshot.entries else []
    newest = [result.value for result in nightly.values(entries, metric, column.w.of)]
    today = datetime.fromtimestamp(snapshot.when / 1000, UTC).date()
    last = newest_day((entry.partition for entry in entries), today)
    aging, nights = Aging.of(nightly.stored, context.engine(), last, [column]), []
    for entry, value in zip(entries, newest, strict=True):
        aged = aging.measure(entry, aging.reached(entry, ages)) if entry.state(OPEN, "") else entry.aged
        nights.append(_Night(entry, value, {one.age: one for one in aged}))
    name = f"{metric}[{column.w.of}]"
    rows = [night.row(age, name) for night in nights for age in aging.reached(night.entry, ages)]
    old = [night for night in nights if aging.reached(night.entry, ages[-1:])]
    whole = [night for night in old if not any(math.isnan(night.row(age, name).change) for age in ages)]
    rows += [_all_of(old, whole, age, name) for age in ages if old]
    basis = None if column.w.spec.traits.unlabelled else "labelled rows"
    of_ages = "" if tuple(ages) == AGES else f" --ages {','.join(map(str, ages))}"
    command = f"streameval maturity {context.location.name} --metric {metric} --of {column.w.of}{of_ages}"
    source = Source((context.location.name,), 0, command, len(entries))
    return Maturity(metric, column.w.of, tuple(ages), tuple(rows), len(whole), basis, source)


class _Night(NamedTuple):
    """A night, the value of a metric with all labels, and what is known of its ages."""

    entry: Entry
    newest: float
    aged: Mapping[int, Aged]

    def row(self, age: int, name: str) -> MaturityRow:
        """The row of an age."""
        _, labelled, positives, values = self.aged.get(age, Aged(age, 0, 0, {}))
        share = labelled / self.entry.rows if age in self.aged else math.nan
        value = values.get(name)
        number = math.nan if value is None else value
        rate = positives / labelled if labelled else math.nan
        return MaturityRow(self.entry.partition, age, share, rate, number, self.newest - number)


def _all_of(old: Sequence[_Night], whole: Sequence[_Night], age: int, name: str) -> MaturityRow:
    """The row of all `old` nights at an age: shares, unless one lacks the age, and means of the `whole` ones."""
    aged = [night.aged[age] for night in old if age in night.aged]
    labelled, positives = sum(one.labelled for one in aged), sum(one.positives for one in aged)
    share = labelled / sum(night.entry.rows for night in old) if len(aged) == len(old) else math.nan
    rate = positives / labelled if labelled and len(aged) == len(old) else math.nan
    own = [night.row(age, name) for night in whole]
    value, change = (
        math.fsum(some) / len(own) if own else math.nan
        for some in ([row.value for row in own], [row.change for row in own])
    )
    return MaturityRow(ALL, age, share, rate, value, change)


@dataclass(frozen=True)
class Aging:
    """What measures open nights with labels up to some ages.

    Attributes
    ----------
    stored : the nights of the store
    folding : folds them
    due : the states of the columns, each time with whether they take every row, or the labelled ones alone
    columns : the columns with their metrics
    labels : all statements of the store about labels
    others : the values of further columns that arrive late, whatever their age
    clock : when the last of nights and labels arrived, in microseconds since 1970
    engine : the engine of the run
    shared : requests of the states that are those of all nights (`MetricRequest.of_store`), with the states
    """

    stored: Nights
    folding: Folding
    due: Sequence[tuple[bool, frozenset[tuple[str, str]]]]
    columns: Sequence[Column]
    labels: LabelsByAge
    others: tuple[LateLabels, ...]
    clock: int
    engine: ThreadEngine
    shared: Sequence[tuple[MetricRequest, State]]

    @classmethod
    def of(cls, stored: Nights, engine: ThreadEngine, newest: int, columns: Iterable[Column] | None = None) -> Aging:
        """For those of some columns, by default all, whose metrics depend on labels.

        All nights of the store are given, and the newest as `date.toordinal`.
        """
        configuration, files = stored.configuration, stored.files.files
        request = configuration.request()
        wanted = configuration.wanted(request)
        shared = [(w, stored.merged(engine, w)) for w in wanted if w.of_store]
        if columns is None:
            columns = [Column(request, w, {}) for w in wanted]
        columns = [column for column in columns if column.w.group in _LABELLED]
        own = frozenset((column.w.group, column.w.of) for column in columns)
        due = [(bool(every), own & some) for every, some in enumerate(dependent_states(configuration)) if own & some]
        labels = LabelsByAge(read_statements(configuration, files), configuration)
        folding = Folding(configuration, files, skip=False)
        others = read_others(configuration, files)
        return cls(stored, folding, due, columns, labels, others, labels.clock(newest), engine, shared)

    def reached(self, entry: Entry, ages: Sequence[int]) -> list[int]:
        """Those of some ages that a night has reached."""
        return [age for age in ages if reach(entry.partition, age) <= self.clock]

    def measure(self, entry: Entry, ages: Sequence[int]) -> list[Aged]:
        """An open night with the labels up to each age, in ascending order."""
        if not self.due:
            return []
        night = OpenNight.read(entry, self.folding.files)
        own = self.labels.of_night(night)
        if not own.first.size and not entry.labels.neg + entry.labels.pos:
            return [Aged(age, 0, 0, {}) for age in ages]
        nights, pairs = self.stored.of(entry), (w for w in (column.w for column in self.columns) if w.stored[1:])
        of_every = {w.spec: cast("ClusterCounts", nights.merged(self.engine, w.stored[1])) for w in pairs}
        measured: dict[int, Aged] = {}
        aged = []
        for age, late in zip(ages, self.labels.resolve(own, entry.partition, ages), strict=True):
            if id(late) not in measured:
                measured[id(late)] = self._measured(night, late, of_every)
            aged.append(measured[id(late)]._replace(age=age))
        return aged

    def _measured(self, night: OpenNight, late: LateLabels, of_every: Mapping[StoredSpec, ClusterCounts]) -> Aged:
        """An open night with some labels, at an age that follows; `of_every` are the clusters of its every row."""
        states: dict[StoredSpec, State] = {}
        for every, due in self.due:
            folding = replace(self.folding, late=replace(late, others=self.others)).only(night.entry, due)
            states |= folding.fold_rows(night, self.engine, every=every)[1].states
            counts = cast("LabelCounts", states[self.folding.configuration.folding.label])
            if not counts.neg + counts.pos:
                return Aged(0, 0, 0, {})
        for w in (column.w for column in self.columns if column.w.spec in of_every):
            if (labelled := cast("ClusterCounts | None", states.get(w.stored[0].spec))) is not None:
                states[w.spec] = of_every[w.spec].with_labels(labelled)
        return Aged(0, counts.neg + counts.pos, counts.pos, self._values(night.entry, states))

    def close(self, entry: Entry) -> Entry:
        """A night that is closed, with its values at those `AGES` that it reached among its facts."""
        aged = [one._asdict() for one in self.measure(entry, self.reached(entry, AGES))]
        return replace(entry, facts=json.dumps(entry.noted | {"maturity": aged}))

    def _values(self, entry: Entry, states: Mapping[StoredSpec, State]) -> dict[str, float | None]:
        """The metrics of all columns, by names such as ``roc_auc[score]``; None if one is not defined."""
        label, values = self.folding.configuration.folding.label, dict[str, float | None]()
        for column in (one for one in self.columns if one.w.spec in states):
            request, w = replace(column.request, resampling=NO_INTERVALS), column.w
            own = {spec: states[spec] for spec in (label, w.spec)} | {one.spec: state for one, state in self.shared}
            both = [w, *(one for one, _ in self.shared)]
            try:
                results = finalize_nights(self.engine, [entry.partition], request, label, both, own).results
            except DataError:
                continue
            values |= {f"{r.metric}[{r.of}]": None if math.isnan(r.value) else float(r.value) for r in results}
        return values
