"""Values of single nights with their replicates, for rules that judge several nights together.

They are computed from the states of a night. A file for each night keeps those of the last `NIGHTS` nights: for each
rule's metric and slicing a table with a row a slice and about 1 KiB for its replicates. The files are a cache, named by
the contents of the night's states and sealed by a hash; a damaged or missing one is computed again, and all together
take at most `MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import fs

from streameval.errors import CorruptFileError, DataError
from streameval.evaluation.alarms import PAST, Series, variance
from streameval.evaluation.intervals import Estimated
from streameval.results import COLUMNS, Scalar, from_arrow, slice_name, to_arrow
from streameval.scan import READ_ERRORS
from streameval.store.nights.results import key_of
from streameval.store.nights.slices import slice_estimates
from streameval.wording import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.rules import Rule
    from streameval.store.files.entries import Entry
    from streameval.store.files.location import Location
    from streameval.store.nights.merge import Column
    from streameval.store.nights.results import MetricSeries
    from streameval.typing import Array

NIGHTS = 2 * PAST + 1  # a night, a window before it, and the floors of that window
MOST_BYTES = 256 << 20
_ALONE = pa.ipc.IpcReadOptions(use_threads=False)
_SMALL = pa.ipc.IpcWriteOptions(compression="lz4")
_HASH = 32  # bytes of a hash
_SLICE = "slice."  # before the columns of slices, whose names may be those of others
_ERRORS = "se.square", "se.freedom", "se.units"  # of the replicates of a slice
_LEVEL = 0.95  # a level is needed to compute replicates; no interval of this level is used
_SAMPLED = "the value is of a sample of the rows, and replicates do not hold the error of the draw"


@dataclass(frozen=True)
class Replicates:
    """A metric of a night in each slice, or of all rows.

    Attributes
    ----------
    table : the values as `streameval.results.to_arrow` writes them, and further columns: `name` of the slice, empty for
        all rows; `scale`, a key of `streameval.metrics.estimates.SCALES`; `problem`, why there are no replicates; and
        what `streameval.evaluation.alarms.Series` has. Columns of slices have a prefix
    """

    table: pa.Table

    @classmethod
    def of(cls, results: Sequence[Estimated]) -> Replicates:
        """The replicates of some results, which differ in their slices."""
        estimates = [one.own for one in results]
        blocks = max((one.replicates.size for one in estimates), default=1) or 1
        around, rows = np.full((len(estimates), blocks), math.nan), np.zeros((len(estimates), blocks))
        problems, units = list(map(_problem, results)), np.zeros(len(rows))
        for i, one in enumerate(estimates):
            if problems[i] is None and one.replicates.size == blocks:
                units[i], kind = one.sizes.governing
                around[i], rows[i] = one.replicates - one.around, one.sizes.counts[kind]
                if one.known is not None and (spread := replace(one, known=None).stderr):
                    around[i] *= one.known / spread  # a sample of labels has a larger error than its replicates show
        table = to_arrow(one.scalar for one in estimates)
        own = len(COLUMNS) + 1  # those of slices follow, and may have the name of another
        names = table.schema.names
        table = table.rename_columns([*names[:own], *(f"{_SLICE}{name}" for name in names[own:])])
        texts = {
            "name": [slice_name(one.scalar.slice) for one in estimates],
            "scale": [one.scale for one in estimates],
            "problem": problems,
        }
        for name, column in texts.items():
            table = table.append_column(name, pa.array(column, pa.string()))
        for name, column in zip(_ERRORS, (*variance(around), units), strict=True):
            table = table.append_column(name, pa.array(column))
        for name, array in (("replicates", around), ("block_rows", rows)):
            lists = pa.array(array.ravel().astype(np.float32))
            table = table.append_column(name, pa.FixedSizeListArray.from_arrays(lists, blocks))
        return cls(table)

    @cached_property
    def names(self) -> list[str]:
        """The name of each slice."""
        names: list[str] = self.table["name"].to_pylist()
        return names

    def numbers(self, column: str) -> Array:
        """A column of numbers as a float64 array of shape (n_slices,)."""
        values: Array = self.table[column].fill_null(math.nan).to_numpy()
        return values

    def blocks(self, column: str) -> Array:
        """A column with a value for each slice and block, as a float32 array of shape (n_slices, n_blocks)."""
        lists = self.table[column].combine_chunks()
        values: Array = lists.flatten().to_numpy()
        return values.reshape(len(lists), lists.type.list_size)

    @cached_property
    def scalars(self) -> list[Scalar]:
        """The values as results, with their slices; `ci_reason` says why there are no replicates."""
        own = [name for name in self.table.schema.names if name.startswith(_SLICE)]
        slices = self.table.select(own).rename_columns([name.removeprefix(_SLICE) for name in own]).to_pylist()
        more = zip(from_arrow(self.table), slices, self.table["problem"].to_pylist(), strict=True)
        return [replace(one, slice=named or None, ci_reason=problem) for one, named, problem in more]


def _problem(result: Estimated) -> str | None:
    """Why an estimate has no replicates that nights can share.

    A night whose value no block changes, or one alone, has its place in windows: left out, those near a perfect value
    would be missing, and the mean of the others would be too low. The floor gives it an error.
    """
    one = result.own
    if one.known is None and not one.deviations.any():
        one = replace(one, reason=None)
    return one.unusable or (_SAMPLED if one.drawn else None)


class ReplicateCache:
    """The replicates of a store's nights; those of all rules on the same state are computed together."""

    def __init__(self, location: Location, nightly: MetricSeries, rules: Sequence[Rule]) -> None:
        self.location = location
        self.nightly = nightly
        self._rules = [rule for rule in rules if rule.always or (rule.how and rule.level is not None)]
        self._columns: dict[str, Column] = {}
        self._nights: dict[str, dict[str, Replicates]] = {}  # by file, then by series
        self._new = set[str]()

    def of(self, rule: Rule, entry: Entry) -> Replicates:
        """The metric of a rule in a night, in every slice of its slicing."""
        file, series = self._file(entry), self._series(rule)
        known = self._night(file)
        if series not in known:
            rules = [one for one in self._rules if one.than is None and self._place(one) == self._place(rule)]
            try:
                known |= self._compute(rules, entry) if rule.than is None else {series: self._difference(rule, entry)}
            except CorruptFileError:
                raise
            except DataError:
                return Replicates.of([])
            self._new.add(file)
        return known[series]

    def write(self, entries: Sequence[Entry]) -> None:
        """Write what is new of the last nights, and delete all else; a failure only costs time."""
        if not self._new:
            return
        with suppress(*READ_ERRORS):
            size, kept = 0, set[str]()
            for file in map(self._file, reversed(entries[-NIGHTS:])):
                content = _pack(self._night(file)) if file in self._new else b""
                size += len(content) or self.location.filesystem.get_file_info(self.location.child(file).path).size or 0
                if size > MOST_BYTES:
                    break
                if content:
                    self.location.child(file).write(content)
                kept.add(file)
            for info in self.location.filesystem.get_file_info(
                fs.FileSelector(self.location.path, allow_not_found=True)
            ):
                if info.base_name.endswith(".arrow") and info.base_name not in kept:
                    self.location.filesystem.delete_file(info.path)
            self._new.clear()

    def _file(self, entry: Entry) -> str:
        return f"{key_of(entry.partition, *(text for state in entry.states for text in state.content))}.arrow"

    def _column(self, rule: Rule) -> Column:
        if rule.name not in self._columns:
            self._columns[rule.name] = self.nightly.column(rule.metric, rule.of, _LEVEL)
        return self._columns[rule.name]

    def _place(self, rule: Rule) -> tuple[str, ...]:
        """The state and the slicing that a rule reads."""
        w = self._column(rule).w
        return (w.group, w.of, *(self.nightly.slicing_of(rule).columns if rule.slices else ()))

    def _series(self, rule: Rule) -> str:
        return key_of(canonical(rule.metric), str(rule.than), *self._place(rule), self._column(rule).options)

    def _night(self, file: str) -> dict[str, Replicates]:
        if file not in self._nights:
            self._nights[file] = {}
            with suppress(*READ_ERRORS, pa.ArrowInvalid):
                self._nights[file] = _unpack(self.location.child(file).read())
        return self._nights[file]

    def _compute(self, rules: Sequence[Rule], entry: Entry) -> dict[str, Replicates]:
        """What rules on one state and slicing take of a night, from its states; raises `DataError` if it has none."""
        nightly, names = self.nightly, {canonical(rule.metric): self._series(rule) for rule in rules}
        column = nightly.column_with(list(names), self._column(rules[0]).w.of, _LEVEL)
        if rules[0].slices:
            key = nightly.slicing_of(rules[0])
            found = slice_estimates(nightly.stored.of(entry), nightly.engine, column.request, key, column.states)
        else:
            found = nightly.estimates(entry, column)
        by_metric = dict[str, list[Estimated]]()
        for one in found:
            by_metric.setdefault(one.own.scalar.metric, []).append(one)
        return {series: Replicates.of(by_metric.get(name, [])) for name, series in names.items()}

    def _difference(self, rule: Rule, entry: Entry) -> Replicates:
        metric, columns = canonical(rule.metric), (self._column(rule).w.of, str(rule.than))
        both = []
        for of in columns:
            found = self.nightly.estimates(entry, self.nightly.column_with([metric], of, _LEVEL))
            both += [one.paired for one in found if one.own.scalar.metric == metric]
        apart = both[0].minus(both[1])
        return Replicates.of([Estimated(apart, apart)])


def _pack(night: dict[str, Replicates]) -> bytes:
    """The tables of a night in one file: a hash, the length of a JSON index, the index, and the tables."""
    parts: dict[str, bytes] = {}
    for series, one in night.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, one.table.schema, options=_SMALL) as writer:
            writer.write_table(one.table)
        parts[series] = sink.getvalue().to_pybytes()
    index = json.dumps({series: len(part) for series, part in parts.items()}).encode()
    content = len(index).to_bytes(8, "little") + index + b"".join(parts.values())
    return hashlib.sha256(content).digest() + content


def _unpack(packed: bytes) -> dict[str, Replicates]:
    """The tables of a file; none if it is damaged."""
    content = memoryview(packed)[_HASH:]
    if hashlib.sha256(content).digest() != packed[:_HASH]:
        return {}
    start = 8 + int.from_bytes(content[:8], "little")
    night = {}
    for series, size in json.loads(bytes(content[8:start])).items():
        part = pa.py_buffer(content[start : start + size])
        night[series] = Replicates(pa.ipc.open_stream(part, options=_ALONE).read_all())
        start += size
    return night


def series_of(nights: Sequence[tuple[int, Replicates]], names: Sequence[str]) -> Series:
    """The values of some slices, by name, in some nights, each with its day; a slice may be absent from a night."""
    recent = nights[-PAST:]
    blocks = max(one.table.schema.field("replicates").type.list_size for _, one in recent)
    facts = np.full((1 + len(_ERRORS), len(nights), len(names)), math.nan)
    replicates = np.full((len(recent), len(names), blocks), math.nan, np.float32)
    rows = np.zeros(replicates.shape, np.float32)
    place = {name: i for i, name in enumerate(names)}
    for t, (_, one) in enumerate(nights):
        pairs = [(place[name], i) for i, name in enumerate(one.names) if name in place]
        if not pairs:
            continue
        at, own = (np.array(side) for side in zip(*pairs, strict=True))
        facts[:, t, at] = [one.numbers(name)[own] for name in ("value", *_ERRORS)]
        if (late := t - len(nights) + len(recent)) >= 0:
            for table, name in ((replicates, "replicates"), (rows, "block_rows")):
                values = one.blocks(name)
                table[late, at, : values.shape[1]] = values[own]
    days = np.array([day for day, _ in nights])
    value, square, freedom, units = facts
    return Series(days, value, square, freedom, np.nan_to_num(units), replicates, rows)
