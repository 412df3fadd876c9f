"""Entries: the partitions of the ledger, each with its states and facts.

The ledger is in runs of rows (`SCHEMA`), oldest first. The newest row of a partition counts, and a row with `removed`
takes it out of the store.

The facts of a night (nulls by column, rows and nulls by file, files left out) come from its states and the footers of
its files. If a rule fails, they show what changed without reading data. They are JSON, which is parsed when it is
needed, and checked then, so that a forged ledger is refused by the name of the partition.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import FormatError
from streameval.results import Scalar
from streameval.scan import READ_ERRORS, natural
from streameval.scan.parquet.pages import footer_at
from streameval.scan.parquet.statistics import StoredColumns
from streameval.states.grouped.groups import Grouped
from streameval.store.files.published import content_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.evaluation.protocol import MetricRequest
    from streameval.scan import File
    from streameval.states.protocol import State
    from streameval.states.scores.counts import ScoreCounts


_LABELS = pa.struct(
    {"column": pa.string(), "values": pa.string()} | dict.fromkeys(("neg", "pos", "null", "incomplete"), pa.int64())
)
_STATE = pa.struct([*((name, pa.string()) for name in ("group", "of", "kind", "file")), ("bytes", pa.int64())])
SCHEMA = pa.schema(
    {
        "partition": pa.string(),
        "root": pa.string(),
        "fingerprint": pa.string(),
        "files": pa.int64(),
        "bytes": pa.int64(),
        "rows": pa.int64(),
        "labels": _LABELS,
        "states": pa.list_(_STATE),
        "updated": pa.timestamp("us", "UTC"),
        "facts": pa.string(),
        "removed": pa.bool_(),
    }
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 1 << 53  # rows or bytes; float64 holds all smaller integers


class Labels(NamedTuple):
    """The labels of a partition.

    Attributes
    ----------
    column : the label column; empty if labels were not read
    values : up to three of the label values, as JSON
    neg, pos, null, incomplete : rows, as in `streameval.states.labels.LabelCounts`
    """

    column: str
    values: str
    neg: int
    pos: int
    null: int
    incomplete: int


class Aged(NamedTuple):
    """A night with the late labels up to an age.

    Attributes
    ----------
    age : days after the end of the night
    labelled, positives : rows that had a label, and those of them that are positive
    values : metrics by names such as ``roc_auc[score]``; None if one is not defined
    """

    age: int
    labelled: int
    positives: int
    values: dict[str, float | None]


@dataclass(frozen=True)
class StoredState:
    """A state of a partition.

    Attributes
    ----------
    group, of : family (``score``, ``cluster`` or ``classes``) and column
    kind : kind of the state, such as ``score_counts``
    file : name of the state file
    bytes : its size
    """

    group: str
    of: str
    kind: str
    file: str
    bytes: int

    @property
    def content(self) -> tuple[str, str, str, str]:
        """Identity of the state, independent of when and where it was written.

        Raises
        ------
        FormatError
            If its file does not have the name of a published file.
        """
        return self.group, self.of, self.kind, content_of(self.file)


@dataclass(frozen=True)
class Entry:
    """A partition of the ledger.

    Attributes
    ----------
    partition : name, such as ``night=2026-01-15``
    root : directory that the name is relative to
    fingerprint : hash of the names, sizes and modification times of its files
    files, bytes : number and total size of its files
    rows : number of rows
    labels : rows by label
    states : the other states, each in a file
    updated : time of the fold, or of the newest late labels, UTC
    facts : nulls by column, rows and nulls by file, files left out, and values of a night that was closed for late
        labels by their age, as JSON; see `gather_facts`
    """

    partition: str
    root: str
    fingerprint: str
    files: int
    bytes: int
    rows: int
    labels: Labels
    states: tuple[StoredState, ...]
    updated: datetime
    facts: str = "{}"

    @cached_property
    def noted(self) -> dict[str, Any]:
        """The facts, parsed; raises `FormatError` if they are damaged."""
        try:
            facts = json.loads(self.facts)
            if _are_facts(facts):
                return dict(facts)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise FormatError(f"{self.partition}: its facts in the ledger are damaged; restore the ledger from a backup")

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """Files that could not be read, each with the reason."""
        return [(name, why) for name, why in self.noted.get("left_out", ())]

    @property
    def incomplete(self) -> bool:
        """Whether files were left out."""
        return bool(self.left_out)

    @property
    def folded(self) -> str:
        """Time of the fold of the data; `updated` is that of the newest labels."""
        is_noted = '"folded"' in self.facts  # only nights that late labels touched; parsing takes time
        return str(self.noted["folded"]) if is_noted else self.updated.isoformat()

    @property
    def aged(self) -> list[Aged]:
        """A night that is closed for late labels, with the labels up to some ages."""
        return [Aged(**one) for one in self.noted.get("maturity", ())]

    def state(self, group: str, of: str) -> StoredState | None:
        """The state of a column, if there is one."""
        return next((state for state in self.states if state.of == of and state.group == group), None)


def _are_facts(facts: Any) -> bool:
    """Whether facts have the form that `gather_facts` gives them; other errors mean that they have not."""
    files, lost, counts = facts.get("files", []), facts.get("left_out", []), [facts.get("nulls", {})]
    counts += [file["nulls"] for file in files] + [{"rows": file.get("rows") or 0} for file in files]
    aged = [Aged(**one) for one in facts.get("maturity", ())]
    counts += [one._asdict() | {"values": 0} for one in aged]
    values = [value for one in aged for value in one.values.values() if value is not None]
    texts = [file["file"] for file in files] + [text for name, why in lost for text in (name, why)]
    return (
        isinstance(files, list)
        and isinstance(lost, list)
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(value, int | float) for value in values)
        and all(type(count) is int and 0 <= count < _MOST for some in counts for count in some.values())
    )


def row_of(entry: Entry, *, removed: bool = False) -> dict[str, object]:
    """The row of an entry, or the one that removes it."""
    facts = {name: getattr(entry, name) for name in SCHEMA.names if name != "removed"}
    states = [] if removed else [vars(state) for state in entry.states]
    return facts | {"labels": entry.labels._asdict(), "states": states, "removed": removed}


def merge_runs(runs: Sequence[pa.Table], *, whole: bool) -> pa.Table:
    """The newest row of each partition in some runs, oldest first; without removed ones if these are all runs.

    Raises
    ------
    FormatError
        If a run has two rows of a partition.
    """
    for run in runs:
        name, times = next(iter(Counter(run["partition"].to_pylist()).most_common(1)), ("", 0))
        if times > 1:
            raise FormatError(f"two rows are of partition {name!r}")
    rows = pa.concat_tables([SCHEMA.empty_table(), *runs])
    newest = {name: i for i, name in enumerate(rows["partition"].to_pylist())}
    rows = rows.take(pa.array(newest.values(), pa.int64()))
    return rows.filter(pc.invert(pc.fill_null(rows["removed"], False))) if whole else rows


def entries_of(runs: Sequence[pa.Table]) -> dict[str, Entry]:
    """The entries of all runs, by name, in the natural order of names.

    They are built column by column for speed, because every verb reads the ledger.

    Raises
    ------
    FormatError
        If a row is not one of the ledger.
    """
    rows = merge_runs(runs, whole=True)
    nested = ("labels", "states", "updated")
    columns = {name: rows[name].to_pylist() for name in rows.column_names if name not in nested}
    labels, lists = rows["labels"].combine_chunks().flatten(), rows["states"].combine_chunks()
    facts = lists.values.flatten()
    fields = (*zip(_LABELS.names, labels, strict=True), *zip(_STATE.names, facts, strict=True))
    _check_rows([*zip(rows.column_names, rows.columns, strict=True), *fields])
    columns["labels"] = list(map(Labels, *(field.to_pylist() for field in labels)))
    for name, counts, count in zip(columns["partition"], columns["labels"], columns["rows"], strict=True):
        if sum(counts[2:]) != count:
            raise FormatError(f"{name}: its labels in the ledger are damaged; restore the ledger from a backup")
    states = list(map(StoredState, *(fact.to_pylist() for fact in facts)))
    columns["states"] = [tuple(states[a:b]) for a, b in pairwise(lists.offsets.to_pylist())]
    since = rows["updated"].cast(pa.int64()).to_pylist()  # converting timestamps would import pandas
    columns["updated"] = [_EPOCH + timedelta(microseconds=count) for count in since]
    names = [name for name in rows.column_names if name != "removed"]
    entries = {entry.partition: entry for entry in map(Entry, *(columns[name] for name in names))}
    return {name: entries[name] for name in sorted(entries, key=natural)}


def _check_rows(columns: Iterable[tuple[str, pa.Array | pa.ChunkedArray]]) -> None:
    """Raise `FormatError` if a column has a null, or a count is negative or too large."""
    for name, column in columns:
        if column.null_count:
            raise FormatError(f"a row has no value for {name!r}")
        least, most = pc.min_max(column).as_py().values() if pa.types.is_integer(column.type) else (0, 0)
        if len(column) and not 0 <= least <= most < _MOST:
            raise FormatError(f"a row has the value {least if least < 0 else most} for {name!r}")


def gather_facts(
    files: Sequence[File],
    columns: Sequence[str],
    states: Iterable[tuple[MetricRequest, State]],
    left_out: Sequence[tuple[str, str]],
    *,
    filtered: bool = False,
) -> str:
    """The facts of a night as JSON.

    Parameters
    ----------
    files : the files of the night
    columns : the columns that were read
    states : the folded states, each with its request
    left_out : (file, reason) of unreadable files
    filtered : whether the night has only the rows of a filter; of the footers' counts, only zero is then certain
    """
    counted = [_file(file, columns) for file in files if file.name not in dict(left_out)]
    if filtered:
        counted = [one | {"nulls": {name: 0 for name, count in one["nulls"].items() if not count}} for one in counted]
    by_column = {name: [one["nulls"].get(name) for one in counted] for name in columns}
    nulls = {name: sum(counts) for name, counts in by_column.items() if None not in counts}
    nulls |= missing_scores(states)
    return json.dumps({"nulls": nulls, "files": counted, "left_out": [list(one) for one in left_out]})


def missing_scores(states: Iterable[tuple[MetricRequest, State]]) -> dict[str, int]:
    """Rows without a score, by column."""
    scores = {w.of: state for w, state in states if w.group == "score"}
    counts = {name: state.total() if isinstance(state, Grouped) else state for name, state in scores.items()}
    return {name: int(cast("ScoreCounts", state).nan_rows.sum()) for name, state in counts.items()}


def merge_facts(entry: Entry, other: Entry) -> str:
    """Merge the facts of a night with those of added columns, as JSON."""
    one, more = entry.noted, other.noted
    if "nulls" not in one:
        return entry.facts
    nulls = {file["file"]: file["nulls"] for file in more.get("files", ())}
    files = [file | {"nulls": nulls.get(file["file"], {}) | file["nulls"]} for file in one.get("files", ())]
    return json.dumps(one | {"nulls": more.get("nulls", {}) | one["nulls"], "files": files})


def _file(file: File, columns: Sequence[str]) -> dict[str, Any]:
    """The rows of a file, and the nulls of each column for which the footer counts them in every row group."""
    try:
        footer = footer_at(file.filesystem, file.path)
    except READ_ERRORS:
        return {"file": file.name, "rows": None, "nulls": {}}
    columns_of, nulls = StoredColumns(footer), {}
    for name in (name for name in columns if name in columns_of.leaves):
        counts = [columns_of.null_count(i, columns_of.leaves[name][-1]) for i in range(footer.num_row_groups)]
        if None not in counts:
            nulls[name] = sum(filter(None, counts))
    return {"file": file.name, "rows": footer.num_rows, "nulls": nulls}


def fact(entry: Entry, name: str, of: str | None = None, *, share: bool = False) -> Scalar:
    """A fact of a night as a result: its ``rows``, ``positives``, or ``nulls`` of a column.

    Parameters
    ----------
    entry : the night
    name, of : the fact; `of` is the column of ``nulls``
    share : whether to divide positives by labelled rows, and nulls by rows

    Returns
    -------
    Scalar
        Undefined, with the reason, if it was not recorded.
    """
    labels, of_all = entry.labels, entry.rows
    if name == "rows":
        return Scalar.certain(name, entry.rows)
    value: int | None = labels.pos
    if name == "positives":
        of_all = labels.neg + labels.pos
    else:
        value = labels.null if of == labels.column else entry.noted.get("nulls", {}).get(of)
    if value is None:
        why = f"nulls of {of} were not recorded; if the store has no filter (--where), fold the night again"
        return replace(Scalar.undefined(name, why), of=of)
    number = (value / of_all if of_all else math.nan) if share else value
    return replace(Scalar.certain(name, number), of=of, reason="no rows" if math.isnan(number) else None)
