"""Files: data that one pass folds, and a forecast of what the pass will read, hold in memory and do.

Tables and readers are files as well.

Rows and bytes come from the footers. The sizes of states are computed from the rows: for a keyed state the forecast is
an upper bound, because repeated keys are stored once; other states have a fixed size, or a size that does not grow with
the rows.

Commands name data as well: this is the source of their results, takes storage options in URIs, and suggests a command
for unknown columns.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, cast

from streameval import options, scan
from streameval.engine import Engine, Work, start
from streameval.engine.fold import Folded, Plan, batch_rows, builder_bytes, row_width
from streameval.errors import MissingInputError, OptionError
from streameval.evaluation.families import planned
from streameval.evaluation.intervals import block_requests, list_specs
from streameval.evaluation.labels.columns import read_columns, with_late_fields
from streameval.evaluation.protocol import MetricRequest, assignment_cells
from streameval.results import Source
from streameval.saving import AsJson
from streameval.scan import Piece, mask_uri
from streameval.scan.files.uris import Uri
from streameval.scan.parquet.statistics import ColumnFacts, survey
from streameval.scan.pieces import without_views
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.keyed.counts import SLAB
from streameval.states.rounds import row_bytes
from streameval.wording import few, plural, shell, size, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.evaluation.labels.statements import LateSource, Statements
    from streameval.evaluation.request import Request
    from streameval.scan import Pruned, Scan, Where
    from streameval.states.labels import LabelSpec
    from streameval.states.late import Matches
    from streameval.states.protocol import Spec

_LOG = logging.getLogger(__name__)
RUN_OPTIONS = ("memory", "spill", "threads", "client", "scheduler_timeout", "progress")  # options of the engine
_SORT = 32  # bytes for an item of a shard that is gathered and sorted


@dataclass(frozen=True)
class StateForecast:
    """One state of a run.

    Attributes
    ----------
    kind, of : kind of the state, and its column
    bytes : upper bound; −1 if the number of rows is unknown
    shards : number of parts that are finalized independently
    """

    kind: str
    of: str
    bytes: int
    shards: int


@dataclass(frozen=True)
class Forecast(AsJson):
    """What a run will do.

    Attributes
    ----------
    where : where its tasks run, in words
    rows : rows to read; −1 if unknown before reading
    partitions : number of files, slices or partitions to read
    bytes : bytes to read, for the requested columns
    columns : tuple of (name, type)
    states : tuple of StateForecast
    ranges : ranges that states are split into
    tasks : number of tasks by name
    memory : bytes that a task needs, by name
    filtered : what remains to be read after filtering, in words; empty without a filter
    skipped : tuple of (file, reason), files that would be left out
    """

    where: str
    rows: int
    partitions: int
    bytes: int
    columns: tuple[tuple[str, str], ...]
    states: tuple[StateForecast, ...]
    ranges: int
    tasks: dict[str, int]
    memory: dict[str, int]
    filtered: str = ""
    skipped: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        rows = plural(self.rows, "row") if self.rows >= 0 else "an unknown number of rows"
        reads = ", ".join(f"{name} ({kind})" for name, kind in self.columns)
        lines = [
            f"{rows} in {plural(self.partitions, 'partition')}; reads {size(self.bytes)}: {reads}",
            *([f"where  {self.filtered}"] if self.filtered else []),
            *(f"skips  {visible(name)}: {reason}" for name, reason in self.skipped),
            *(f"state  {s.kind} of {s.of}: at most {size(s.bytes)}, {plural(s.shards, 'shard')}" for s in self.states),
            *(
                f"tasks  {count:,} {name}" + (f", {size(self.memory[name])} each" if name in self.memory else "")
                for name, count in self.tasks.items()
            ),
            f"on     {self.where}" + (f", states in {self.ranges:,} ranges" if self.ranges > 1 else ""),
        ]
        return "\n".join(map(visible, lines))


@dataclass(frozen=True)
class Files:
    """Data that can be folded in one pass.

    Attributes
    ----------
    engine : where tasks run
    scan : the pieces to read, without those that the filter rules out
    plan : what to fold
    requests : the states to build, with their metrics
    pruned : what the filter ruled out; None without a filter
    statements : labels from another table; None without one, and before it is read
    """

    engine: Engine
    scan: Scan
    plan: Plan
    requests: Sequence[MetricRequest] = ()
    pruned: Pruned | None = None
    statements: Statements | None = None

    @classmethod
    def of(
        cls,
        engine: Engine,
        scanned: Scan,
        label: LabelSpec | None,
        where: Where | None,
        *,
        skip: bool,
        empty: bool = False,
    ) -> Files:
        """The files of a scan whose rows meet a filter; the states to build are added by `folding`.

        Parameters
        ----------
        engine : see `Files`
        scanned : the scan of all columns that are needed
        label : how labels are read; None if rows have no classes
        where : filter of the rows; None for all rows
        skip : whether files that cannot be read are left out
        empty : whether all pieces are kept if none can have a row that meets the filter, rather than refused
        """
        scanned, test, pruned = replace(scanned, schema=without_views(scanned.schema)), None, None
        if where is not None:
            test = where.bound(scanned.schema, scanned.pieces[0].name)
            for note in () if empty else test.notes:  # nights of a store would each repeat it
                _LOG.warning("where: %s", note)
            try:
                scanned, pruned = scan.prune(scanned, test)
            except MissingInputError:
                if not empty:
                    raise
        return cls(engine, scanned, Plan(scanned.schema, label, None, (), skip, where=test), (), pruned)

    @classmethod
    def requested(cls, data: object, request: Request) -> Files:
        """The files of a request on a new engine."""
        options = request.options
        own = [metric for metric in request.selection.own if metric.family != "classes"]  # those are finalized here
        engine = start(**{name: options[name] for name in RUN_OPTIONS}, metrics=own)
        scanned = request.scan(
            data,
            where=request.where,
            on_error=options["on_error"],
            delta_version=options["delta_version"],
            snapshot=options["snapshot"],
            threads=engine.budget.threads,
        )
        late, label = with_late_fields(request.late, scanned, engine), request.label
        if late.schema != scanned.schema and label.column not in late.schema.names:  # classes alone arrive
            label = replace(label, column=None)
        files = cls.of(engine, scanned, label, request.where, skip=options["on_error"] == "skip")
        request.slicing.check(files.scan.schema, files.names[0])
        request.slicing.check_timezone(options["timezone"], files.scan.schema, files.names[0])
        request.resampling.check(late.schema, files.names[0])
        requests = planned(request, replace(files.scan, schema=without_views(late.schema)))
        specs = list_specs(requests, request.resampling, request.slicing)
        return files.folding(requests, specs, request)

    def folding(
        self, requests: Sequence[MetricRequest], specs: Iterable[Spec] = (), request: Request | None = None
    ) -> Files:
        """The same files, with states to build; `specs` are those to fold for them, by default their own.

        A request has a column of weights, and slicing columns that are computed.
        """
        plan = replace(self.plan, specs=tuple(specs) or tuple(dict.fromkeys(w.spec for w in requests)))
        if request is not None:
            plan = replace(plan, weight=request.weight, derived=request.slicing.derived(plan.schema))
        return replace(self, requests=requests, plan=plan)

    def labelled(self, source: LateSource | None) -> Files:
        """The same files with labels from another table, which is read; unchanged without one."""
        if source is None:
            return self
        statements = read_columns(source, self.scan, self.engine)
        return replace(self, statements=statements, plan=replace(self.plan, late=statements.late))

    @property
    def names(self) -> list[str]:
        """The name of every piece."""
        return [piece.name for piece in self.scan.pieces]

    def fold(self) -> Folded:
        """Fold the states."""
        folded = self._read(self.scan.pieces, self.scan.rows, self.plan)
        return replace(folded, skipped=(*self.scan.skipped, *folded.skipped))

    def _read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """As `Engine.read`, with memory for the labels from another table."""
        with self.engine.budget.reserved(plan.late.nbytes if plan.late else 0):
            return self.engine.read(pieces, rows, plan)

    def states(self, request: Request) -> tuple[Sequence[MetricRequest], Folded]:
        """Fold the states of a request; the specs of samples may change if they take a second pass."""
        requests = self.requests
        if request.sampling:
            sampled = {w.spec: w.metrics for w in requests if w.group == "sample"}
            folded, final = request.sampling.fold(self.scan, self.plan, sampled, self._read)
            requests = [
                replace(w, spec=final[w.spec][0], metrics=final[w.spec][1]) if w.spec in final else w for w in requests
            ]
            folded = replace(folded, skipped=(*self.scan.skipped, *folded.skipped))
        else:
            folded = self.fold()
        self.check_found(folded)
        return requests, folded

    def check_found(self, folded: Folded) -> None:
        """Raise `LabelError` if rows have several labels and none is `pos_label`, or late labels are of no row."""
        if self.statements is not None:
            self.statements.check(cast("Matches", folded.states[self.statements.late.spec]), self.names[0])
        first, several = self.names[0], len(set(self.names)) > 1
        folded.labels(cast("LabelSpec", self.plan.label)).check_found(f"all of {first}, …" if several else first)

    def deliver_statements(self, folded: Folded) -> dict[str, int]:
        """Write the rejected statements, if there is a file for them; returns the counts of all; empty without any."""
        if self.statements is None:
            return {}
        matches = cast("Matches", folded.states[self.statements.late.spec])
        labels = folded.labels(cast("LabelSpec", self.plan.label))
        self.statements.save_rejects(matches)
        rows = matches.labelled if labels.spec.column is None else labels.neg + labels.pos
        return self.statements.counted(matches, rows)

    def forecast(self, request: Request | None = None) -> Forecast:
        """Forecast the pass; for a request with sampling intervals or slices, with the states that these need."""
        requests = list(dict.fromkeys(self.requests))
        blocks = [] if request is None else block_requests(requests, request.resampling)
        engine, scanned = self.engine, self.scan
        states = tuple(_state(w, scanned.rows) for w in (*requests, *blocks))
        keyed_bytes = sum(state.bytes for state in states if state.shards)
        shards = sum(
            state.shards for state, w in zip(states, requests, strict=False) if not isinstance(w.spec, ContingencySpec)
        )
        tables = [assignment_cells(w.metrics) is not None for w in requests if isinstance(w.spec, ContingencySpec)]
        work = engine.expected(scanned.pieces, scanned.rows, self.plan, shards, max(keyed_bytes, 0), tables)
        memory = {"fold": _fold_bytes(work, scanned, self.plan, states, engine.budget), "finalize": SLAB * _SORT}
        columns = tuple((field.name, str(field.type)) for field in scanned.schema)
        source = scanned.rows, len(set(self.names)), scanned.nbytes, columns
        filtered = "" if self.pruned is None else str(self.pruned)
        return Forecast(work.where, *source, states, work.ranges, work.tasks, memory, filtered, scanned.skipped)


def _state(wanted: MetricRequest, rows: int) -> StateForecast:
    """The forecast for a state with this number of rows."""
    state = wanted.spec.empty()
    row = row_bytes(state)
    if not row:
        size = wanted.spec.traits.largest or sys.getsizeof(state)
        return StateForecast(wanted.spec.kind, wanted.of, size, 0)
    return StateForecast(wanted.spec.kind, wanted.of, row * rows if rows >= 0 else -1, max(1, -(-rows // SLAB)))


def _fold_bytes(work: Work, scanned: Scan, plan: Plan, states: Sequence[StateForecast], budget: Budget) -> int:
    """Bytes that a fold task needs: a row group as read, two batches, its builders, and its states within limits."""
    rows = max(max(sum(piece.rows for piece in task), 0) for task in work.folds)
    held = sum(state.bytes * rows // max(scanned.rows, 1) if state.shards else state.bytes for state in states)
    group = max(piece.nbytes // max(1, piece.rows // SLAB) for task in work.folds for piece in task)
    batch = row_width(scanned.schema) * batch_rows(scanned.schema, work.capacity, budget)
    builders = work.capacity * builder_bytes(plan.specs)
    return int(group + 2 * batch + builders + min(max(held, 0), work.limit))


def source_of(data: object, pieces: Sequence[Piece], plain: Mapping[str, object], verb: str = "evaluate") -> Source:
    """The source of a result.

    Parameters
    ----------
    data : the data as given to `evaluate`
    pieces : the pieces that were read
    plain : the options in plain form
    verb : the verb that was run

    Examples
    --------
    >>> found = source_of(["s3://key:secret@bucket/a.parquet"], [], {"score": ("a",)})
    >>> found.data, found.command
    (('s3://bucket/a.parquet',), 'streameval evaluate s3://bucket/a.parquet --score a')
    """
    named = list(_name_inputs(data))
    names = tuple(dict.fromkeys(name for name, _ in named))
    on_disk = bool(named) and all(path for _, path in named)
    files = len({piece.name for piece in pieces}) if on_disk else 0
    return Source(names, files, options.command(verb, names, plain) if on_disk else "")


def with_storage(data: Sequence[str], storage: Mapping[str, str]) -> list[str]:
    """Add options of S3 storage to the URIs of inputs.

    Parameters
    ----------
    data : paths and URIs
    storage : options as deltalake spells them, such as ``AWS_ENDPOINT_URL``; options in a URI take precedence

    Raises
    ------
    OptionError
        If no input is on S3, or a URI cannot carry an option.

    Examples
    --------
    >>> with_storage(["s3://bucket/x", "local"], {"AWS_REGION": "eu-west-1"})
    ['s3://bucket/x?region=eu-west-1', 'local']
    """
    uris = [Uri.parse(text) for text in data]
    if not any(uri is not None and uri.on_s3 for uri in uris):
        raise OptionError(
            f"storage_options would change nothing: no input is on S3 (s3://…): {few(list(map(mask_uri, data)))}",
            "storage_options",
        )
    return [
        uri.with_storage(storage) if uri is not None and uri.on_s3 else text
        for text, uri in zip(data, uris, strict=True)
    ]


def is_pattern(text: str) -> bool:
    """Whether a path or URI has wildcards; the options and the credentials of a URI have none.

    Raises
    ------
    OptionError
        If the text is almost a URI.

    Examples
    --------
    >>> is_pattern("s3://bucket/store?region=eu-west-1"), is_pattern("s3://bucket/night=*?region=eu-west-1")
    (False, True)
    """
    uri = Uri.parse(text)
    return any(c in (text if uri is None else uri.path) for c in "*?[")


def _name_inputs(data: object) -> Iterator[tuple[str, bool]]:
    """The name of each input, and whether it is a path."""
    if isinstance(data, str | os.PathLike):
        yield mask_uri(os.fspath(data)), True
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _name_inputs(item)
    else:
        kind = type(data)
        yield f"a {kind.__module__.partition('.')[0]} {kind.__name__}", False


def columns_of(data: Sequence[str]) -> tuple[list[dict[str, object]], str]:
    """The columns of files as plain values (``column, type, rows, nulls, low, high``), and a `suggestion`."""
    columns = survey(data)
    plain = [
        {"column": one.name, "type": one.kind, "rows": one.rows, "nulls": one.nulls}
        | {"low": _text(one.low), "high": _text(one.high)}
        for one in columns
    ]
    return plain, suggestion(data, columns)


def suggestion(data: Sequence[str], columns: Sequence[ColumnFacts]) -> str:
    """A command that evaluates the columns of the data that look like scores and clusters.

    A label is a boolean column, or a column with the range 0 to 1 that is named like a label. A score is a column of
    numbers that is named like a score; if there is none, every floating-point column except weights counts. A cluster
    is a column that is named like one and is not floating-point. If footers report nulls, the command drops those rows,
    column by column.
    """
    data = [mask_uri(text) for text in data]  # without credentials
    floats = [one for one in columns if one.kind in ("halffloat", "float", "double")]
    numbers = [one for one in columns if one in floats or one.kind.startswith(("int", "uint", "decimal"))]
    label = next((one.name for one in columns if _is_label(one)), "LABEL")
    scores = [one.name for one in numbers if one.name != label and _has_name(one, "score", "prob")]
    scores = scores or [one.name for one in floats if not _has_name(one, "weight")]
    clusters = [one.name for one in columns if _has_name(one, "cluster") and one not in floats]
    words = ["streameval", "evaluate", *data, "--label", label]
    words += [word for name in scores for word in ("--score", name)]
    words += [word for name in clusters for word in ("--cluster", name)]
    words += ["--score", "SCORE"] if not scores and not clusters else []
    null = {one.name for one in columns if one.nulls}
    words += ["--unlabelled", "drop"] if label in null else []
    for option, names in (("--nan", scores), ("--nulls", clusters)):
        words += [word for name in names if name in null for word in (option, f"{name}=drop")]
    return shell(words)


def _has_name(one: ColumnFacts, *parts: str) -> bool:
    return any(part in one.name.lower() for part in parts)


def _is_label(one: ColumnFacts) -> bool:
    """Whether a column looks like labels."""
    return one.kind == "bool" or (_has_name(one, "label", "target", "class", "spam") and (one.low, one.high) == (0, 1))


def _text(end: object) -> object:
    if isinstance(end, float):
        return f"{end + 0.0:.6g}"
    return end if end is None or isinstance(end, bool | int | str) else str(end)
