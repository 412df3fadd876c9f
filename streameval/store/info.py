"""What a store holds, and what its verbs would read and keep: from the ledger, listings and footers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.errors import MissingInputError, OptionError, StoreError
from streameval.kinds import in_words, texts
from streameval.options import record_options
from streameval.report.terminal import Shown, table
from streameval.scan.files.tables import Tables
from streameval.store.backfill import list_added, list_altered
from streameval.store.changing import begin_backfill, find_changes, find_replaced
from streameval.store.evaluate import nights_of
from streameval.store.nights.drift import score_request
from streameval.store.nights.open_nights import OPEN, open_days
from streameval.store.nights.partitions import day_of, select_entries
from streameval.wording import few, plural, size, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from streameval.store.context import StoreContext
    from streameval.store.nights.partitions import Partition


_COLUMNS = ("label", "weight", "score", "cluster", "sketch", "classes", "by")


@dataclass(frozen=True)
class LateFacts:
    """Late labels of a store.

    Attributes
    ----------
    open : number of open nights
    rows : bytes of their rows
    statements : number of statements
    bytes : their size
    next_closing, closes_after : the open night that closes next, and the date after which a night closes it; None
        without open nights
    """

    open: int
    rows: int
    statements: int
    bytes: int
    next_closing: str | None = None
    closes_after: str | None = None


@dataclass(frozen=True, repr=False)
class Info(Shown):
    """The description of a store.

    Attributes
    ----------
    name : path or URI, without credentials
    version : version of the ledger; every update increments it
    kept : the versions that are kept, and for how long, in words
    nights, first, last : number of nights, and the names of the first and the last
    rows : total number of rows
    bytes, files : size and number of the state files
    columns : kept columns by kind
    types : key type of each score, cluster and class column
    policies : other options that differ from their defaults
    incomplete : nights from which files were left out
    failing : nights that fail, with the names of the failed rules; None if the judgements cannot be read
    undecided : nights with undecided judgements that keep the gate closed, with the names of the rules; None likewise
    slices : size of the states in bytes, by slicing
    damaged : what is damaged in words, with the remedy: judgements, and states if verified; None if neither was found
    late : open nights and statements of a store of late labels; None without those
    zones : time zone of each slicing column that is a part of a time
    """

    name: str
    version: int
    kept: str
    nights: int
    first: str | None
    last: str | None
    rows: int
    bytes: int
    files: int
    columns: dict[str, Any]
    types: dict[str, str]
    policies: dict[str, Any]
    incomplete: tuple[str, ...]
    failing: dict[str, tuple[str, ...]] | None
    undecided: dict[str, tuple[str, ...]] | None = field(default_factory=dict)
    slices: dict[str, int] = field(default_factory=dict)
    damaged: tuple[str, ...] | None = None
    late: LateFacts | None = None
    zones: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each fact, as text."""
        columns = {n: v if isinstance(v, str) else ", ".join(v) for n, v in self.columns.items() if n != "by"}
        zoned = {by: [self.zones[name] for name in by.split(",") if name in self.zones] for by in self.slices}
        sliced = [
            f"by {by}, {', '.join([*dict.fromkeys(zoned[by]), f'{nbytes / max(self.rows, 1):,.1f} bytes a row'])}"
            for by, nbytes in self.slices.items()
        ]
        failing, undecided = (
            few([f"{night} ({few(list(rules))})" for night, rules in (nights or {}).items()])
            for nights in (self.failing, self.undecided)
        )
        damaged = () if self.damaged is None else self.damaged or ("none: all files are as they were written",)
        return [
            ("store", f"{self.name}, version {self.version}"),
            ("versions", self.kept),
            ("nights", f"{self.nights:,}, {self.first} to {self.last}" if self.nights else "0"),
            ("rows", f"{self.rows:,}"),
            ("size", f"{plural(self.files, 'file')}, {size(self.bytes)}"),
            *columns.items(),
            *(("slices", what) for what in sliced),
            *([("late labels", self._late())] if self.late else []),
            *((name, in_words(value)) for name, value in self.policies.items()),
            ("incomplete", few(self.incomplete) or "none"),
            ("failing", failing or ("unknown" if self.failing is None else "none")),
            *([("undecided", undecided)] if undecided else []),
            *(("damaged", what) for what in damaged),
        ]

    def render(self, *, plain: bool = False) -> RenderableType:
        """A table of names and values; a plain one has no rules."""
        return table(("fact", "value"), self.lines(), plain=plain)

    def _late(self) -> str:
        """The late labels, in words."""
        if (late := self.late) is None:
            return ""
        nights, statements = plural(late.open, "open night"), plural(late.statements, "statement")
        kept = f"{nights}, rows of {size(late.rows)}; {statements}, {size(late.bytes)}"
        return kept + (f"; {late.next_closing} closes with a night after {late.closes_after}" if late.open else "")


def info(context: StoreContext, *, verify: bool) -> Info:
    """Describe a store; see `Store.info`."""
    snapshot, configuration = context.begun()
    entries, names = list(snapshot.entries.values()), list(snapshot.entries)
    stored = [(entry, state) for entry in entries for state in entry.states]
    states = {state.file: state for _, state in stored}
    damaged: tuple[str, ...] | None = None
    if verify:
        damaged = tuple(
            f"{entry.partition}: {state.of or 'rows'} ({state.file}); fold it again: replace "
            f"{entry.root}/{entry.partition}"
            for entry, state in stored
            if not context.files.sound(state.file)
        )
        lost = [name for name in configuration.statements.every_run if not context.files.sound(name)]
        damaged += tuple(f"late labels ({name}); restore the file from a backup" for name in lost)
    failing: dict[str, tuple[str, ...]] | None
    undecided: dict[str, tuple[str, ...]] | None
    try:
        log = context.judgements(snapshot)
        unfolded: dict[str, tuple[str, ...]] = {
            one.partition: (one.rule,) for one in log.unfolded(entries) if one.accepted is None
        }
        failing, undecided = log.failing(entries) | unfolded, log.failing(entries, "undecided")
    except StoreError as error:  # everything else is still told
        failing, undecided, damaged = None, None, (str(error), *(damaged or ()))
    slicings = [",".join(key.columns) for key in configuration.slicing.keys]
    options = {name: configuration.options[name] for name in _COLUMNS if configuration.options[name]}
    late = None
    if configuration.late is not None:
        waiting = [entry for entry in entries if entry.state(OPEN, "")]
        nbytes = sum(state.bytes for entry in waiting for state in entry.states if state.group == OPEN)
        runs = configuration.statements.runs.values()
        late = LateFacts(len(waiting), nbytes, sum(one.rows for one in runs), sum(one.bytes for one in runs))
        if waiting:
            last = day_of(waiting[0].partition, "") + timedelta(open_days(configuration))
            late = replace(late, next_closing=waiting[0].partition, closes_after=str(last))
    return Info(
        context.location.name,
        snapshot.version,
        snapshot.span,
        len(entries),
        names[0] if names else None,
        names[-1] if names else None,
        sum(entry.rows for entry in entries),
        sum(state.bytes for state in states.values()),
        len(states),
        {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()},
        dict(configuration.types),
        {
            name: value
            for name, value in record_options(configuration.options, "update").items()
            if name not in _COLUMNS
        },
        tuple(entry.partition for entry in entries if entry.incomplete),
        failing,
        undecided,
        {by: sum(s.bytes for s in states.values() if s.group.endswith(f".by {by}")) for by in slicings},
        damaged,
        late,
        configuration.zones,
    )


@dataclass(frozen=True)
class Reading:
    """Forecast of what a verb reads and keeps.

    Attributes
    ----------
    nights : number of nights
    first, last : names of the first and the last night
    rows : rows of these nights
    files, bytes : number and size of the files to read; upper bounds for states, because results may be cached
    columns : (files, bytes) by state, such as ``score score_lr``
    keeps : what would be kept, in words
    of_data : columns of the data that would be read; empty if states are read
    """

    nights: int
    first: str
    last: str
    rows: int
    files: int
    bytes: int
    columns: dict[str, tuple[int, int]]
    keeps: str
    of_data: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        columns = [{"state": name, "files": files, "bytes": nbytes} for name, (files, nbytes) in self.columns.items()]
        return {**self.__dict__, "columns": columns}

    def __str__(self) -> str:
        span = f", {self.first} to {self.last}" if self.nights else ""
        nights = self.first if self.nights == 1 else plural(self.nights, "night") + span
        reads = f"at most {plural(self.files, 'state file')}, {size(self.bytes)}, less what is cached"
        if self.of_data:
            reads = f"{plural(self.files, 'file')}, {size(self.bytes)}: {', '.join(self.of_data)}"
        lines = [
            f"{nights}; {plural(self.rows, 'row')}",
            f"would read {reads if self.files else 'nothing'}",
            *(f"  {name}: {plural(n, 'file')}, {size(nbytes)}" for name, (n, nbytes) in self.columns.items()),
            f"would keep {self.keeps}",
        ]
        return "\n".join(map(visible, lines))


FOLDING = ("update", "replace", "add")
READING = ("show", "history", "check", "diagnose", "drift", "attribute", "info")  # verbs that read states
_RUN = ("dry_run", "on_error")  # these do not change what is read
_KEEPS = {"show": "the results until the next update", "history": "the values of the nights", "check": "judgements"}


def plan(context: StoreContext, verb: str, asked: Mapping[str, Any]) -> Reading:
    """Forecast what a verb reads and keeps; see `Store.plan`."""
    if verb in READING:
        return _plan_reading(context, verb, asked)
    if verb not in FOLDING:
        raise OptionError(f"verb={verb!r} must be one of {', '.join((*READING, *FOLDING))}")
    options = {name: value for name, value in asked.items() if name not in _RUN}
    if options.get("labels"):
        raise OptionError("labels: a plan is of data alone; leave out labels (--labels) or the plan (--plan)", "labels")
    data = options.pop("data", None)
    tables = Tables(options.pop("delta_version", None), options.pop("snapshot", None))
    due: Sequence[Partition]
    if verb == "add":
        since = options.pop("since", None)
        snapshot, backfill = begin_backfill(context, options, data, tables)
        chosen = select_entries(snapshot.entries, since=since) if snapshot.entries else []
        configuration, due = backfill.plan(chosen)
        altered = [f"{name}={new}" for name, _, new in list_altered(backfill.after, backfill.before)]
        keeps = f"also {', '.join((*list_added(backfill.after, backfill.before), *altered))}"
    else:
        if verb == "update":
            verify = options.pop("verify", False)
            _, configuration, changes = find_changes(context, data, options, tables)
            due = [*changes.new, *changes.changed, *(changes.unchanged if verify else ())]
        else:
            _, configuration, due = find_replaced(context, data, tables)
        keeps = str(configuration).removeprefix("keeps ")
    files = [file for partition in due for file in partition.files]
    columns = configuration.columns if due else ()
    rows = nbytes = 0
    with suppress(MissingInputError):  # no file has rows
        if files:
            planned = scan.plan(files, columns, on_error="skip", threads=context.engine().threads)
            rows, nbytes = planned.rows, planned.nbytes
    return Reading(*_extent([one.name for one in due]), rows, len(files), nbytes, {}, keeps, tuple(columns))


def _extent(names: Sequence[str]) -> tuple[int, str, str]:
    """The number of nights, and the names of the first and the last; empty without any."""
    return (len(names), *((names[0], names[-1]) if names else ("", "")))


def _plan_reading(context: StoreContext, verb: str, asked: Mapping[str, Any]) -> Reading:
    """Forecast a verb that reads states, from the ledger."""
    as_of = asked.get("as_of")
    snapshot, configuration = context.begun(as_of)
    names = ("partition", "since", "until", "last") if verb != "check" else ("partition",)
    selection = {name: asked[name] for name in names if asked.get(name)}
    entries = select_entries(snapshot.entries, **selection)
    if verb == "diagnose" and not selection:
        log = context.judgements(snapshot)
        due = {**log.failing(entries), **log.failing(entries, "undecided")}
        entries = [entry for entry in entries if entry.partition in due]
    columns, groups = list[str](), list[str]()
    if verb == "show":
        request = configuration.request(**{n: v for n, v in asked.items() if n not in (*names, "as_of", "by")})
        columns = [*request.scores, *request.clusters, *request.sketches]
    elif verb == "history":
        nightly = context.nightly(snapshot, configuration)
        metrics, of = (texts(name, asked.get(name)) for name in ("metric", "of"))
        columns = [column for metric in metrics for _, column in nightly.named(metric, of)]
    elif verb == "attribute":
        columns = [asked[name] for name in ("cluster", "score") if asked.get(name)]
    elif verb == "drift":
        groups = [w.group for w in score_request(configuration, asked["score"]) if w]
        columns = [asked["score"]]
        both = {entry.partition: entry for entry in (*nights_of(snapshot, asked["against"], single=True), *entries)}
        entries = [both[name] for name in sorted(both, key=list(snapshot.entries).index)]
    sizes: dict[str, list[int]] = {}
    if verb != "info" or asked.get("verify"):
        for state in (s for entry in entries for s in entry.states if not columns or s.of in columns):
            if groups and state.group not in groups:
                continue
            sizes.setdefault(f"{state.group} {state.of}", []).append(state.bytes)
    by_state = {name: (len(own), sum(own)) for name, own in sizes.items()}
    files, nbytes = (sum(pair[i] for pair in by_state.values()) for i in (0, 1))
    keeps, rows = _KEEPS.get(verb, "nothing") if as_of is None else "nothing", sum(entry.rows for entry in entries)
    return Reading(*_extent([e.partition for e in entries]), rows, files, nbytes, by_state, keeps)
