"""Accumulator: the states of `streameval.evaluate`, updated from the caller's own loop.

A stream, a training loop, or a Spark or Ray task passes in batches. The accumulator folds each batch into the states
that the metrics need, and returns an `Evaluation` on request. Accumulators with the same options can be merged and
pickled, and are saved as state files of a store. Results equal those of `evaluate` on the same rows to the last bit.

With `ci` or `unit`, blocks of units are kept as further states, and results have sampling intervals. If each row is a
unit, the block of a row depends on its position in its accumulator, so that the intervals of merged accumulators differ
slightly from those of `evaluate`. With a unit column they are the same.

Batches are buffered in the same builders that `evaluate` uses, up to a few million rows, and sorted together. The
memory is that of `evaluate` with one thread; states beyond `memory` are spilled.

A saved accumulator is a directory with state files, as in a store, and an index that lists them. The index holds the
options and has a checksum; otherwise a modified threshold or level would go unnoticed. The file names in it are
validated before any file is opened or deleted.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from streameval import scan
from streameval.budget import Budget
from streameval.engine.fold import Folded, Plan, batch_rows, batches, hand_over, label_reader
from streameval.engine.threads import ThreadEngine
from streameval.errors import (
    FormatError,
    IncompatibleStatesError,
    LabelError,
    MissingInputError,
    OptionError,
    SchemaError,
    SpillError,
    StoreError,
)
from streameval.evaluation.families import planned
from streameval.evaluation.finalize import finalize_all
from streameval.evaluation.intervals import list_specs
from streameval.evaluation.request import Request
from streameval.forks import new_lock
from streameval.options import record_options, refuse, verb_options
from streameval.saving import make_folder
from streameval.scan.pieces import Piece, Scan, TableSource, without_views
from streameval.scan.widen import widen as widened
from streameval.states.protocol import Batch, Builder, Spec, State, ungrouped
from streameval.store.files.location import Location
from streameval.store.files.published import StateFiles, content_of, seal, unseal

if TYPE_CHECKING:
    import os

    from streameval.evaluation.protocol import MetricRequest
    from streameval.evaluation.result import Evaluation
    from streameval.states.labels import LabelCounts


RUN_OPTIONS = ("memory", "spill", "threads")  # set per process; they do not affect results

_TAKEN = {
    "label", "score", "cluster", "classes", "weight", "pos_label", "metrics", "truncate", "aul_threshold", "at", "clip",
    "assignment_cells", "nan", "nulls", "unlabelled", "cluster_scope", "common_rows", "mean_over", "mean_weight", "ci",
    "unit", "baseline", "resample_bins", "approx", *RUN_OPTIONS,
}  # fmt: skip
_REFUSED = {
    "client": "an accumulator folds in its own process; merge the accumulators of your workers",
    "progress": "count your batches instead",
    "on_error": "there are no files to skip",
    "where": "filter the batches first",
    "labels": "join them to your batches",
    "by": "keep an accumulator for each slice",
    "max_slices": "keep an accumulator for each slice",
    "delta_version": "there are no Delta tables to read",
    "snapshot": "there are no Iceberg tables to read",
    "scheduler_timeout": "there is no scheduler",
    "sketch": "update a QuantileSketch in the same loop",
    "approx_agc": "samples depend on the rows of files; use evaluate",
}


def check_names(names: Iterable[str]) -> None:
    """Raise `OptionError` for an option that an accumulator does not take; the message gives the reason.

    Examples
    --------
    >>> check_names(["on_error"])
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: Accumulator takes no on_error: there are no files to skip
    """
    known = verb_options("evaluate")
    for name in names:
        if name not in known:
            refuse("Accumulator", name, [option for option in known if option in _TAKEN])
        if name not in _TAKEN:
            raise OptionError(
                f"Accumulator takes no {name}: {_REFUSED.get(name, 'it needs all data at once; use evaluate')}"
            )


_FORMAT = 1
_INDEX = "accumulator.json"


def write_index(folder: Path, options: Mapping[str, object], schema: pa.Schema | None, states: Iterable[State]) -> None:
    """Write states and an index. The index is replaced atomically, then files of the previous index are deleted.

    Raises
    ------
    OptionError
        If the directory holds other files but no accumulator.
    """
    make_folder(folder)
    entries = {entry.name for entry in folder.iterdir()}
    if entries and _INDEX not in entries:
        raise OptionError(f"{folder}: holds something else than an accumulator; choose another directory")
    before: list[str] = []
    with suppress(FormatError):  # the files of a damaged accumulator are left in place
        before = read_index(folder)[2] if entries else before
    files = StateFiles(Location.of(str(folder)))
    names = [files.write(state)[0] for state in states]
    text = None if schema is None else base64.b64encode(schema.serialize()).decode()
    record = {"format": _FORMAT, "options": options, "schema": text, "states": names}
    Location.of(str(folder)).child(_INDEX).write(seal(record).encode())
    for name in set(before).difference(names):
        (folder / name).unlink(missing_ok=True)


def read_index(folder: Path) -> tuple[dict[str, object], pa.Schema | None, list[str]]:
    """The options, the schema of the batches (None before the first), and the names of the state files.

    Raises
    ------
    FormatError
        If the index is missing, damaged or of another format version.
    """
    try:
        index = unseal((folder / _INDEX).read_bytes())
        version = index.pop("format")
    except (OSError, FormatError, KeyError) as error:
        reason = type(error).__name__ if isinstance(error, OSError) else error
        raise FormatError(f"{folder}: holds no accumulator that can be read ({reason}); save it again") from error
    if version != _FORMAT:
        raise FormatError(f"{folder}: is of format {version}; this version of streameval reads {_FORMAT}: upgrade it")
    try:
        options, schema, names = index["options"], index["schema"], index["states"]
        if not isinstance(options, dict) or not isinstance(names, list) or not options.keys().isdisjoint(RUN_OPTIONS):
            raise FormatError("its index is of another make")
        for name in names:
            content_of(name)
        types = None if schema is None else pa.ipc.read_schema(pa.BufferReader(base64.b64decode(schema)))
    except (FormatError, KeyError, TypeError, ValueError, OSError) as error:
        raise FormatError(f"{folder}: holds no accumulator that can be read ({error}); save it again") from error
    return options, types, names


class Accumulator:
    """States that grow batch by batch. Thread-safe: calls are serialised by a lock.

    Parameters
    ----------
    **options
        The options of `streameval.evaluate` for columns, metrics, policies and intervals, and ``memory``, ``spill`` and
        ``threads`` (used by `result`). Options for files, workers, filters, slices, samples and sketches are refused.

    Raises
    ------
    OptionError
        If an option is refused, unknown or invalid.

    Examples
    --------
    >>> import numpy as np
    >>> day = Accumulator(score="s", metrics=["roc_auc", "brier_score"])
    >>> day.update({"label": np.array([0, 1]), "s": np.array([0.1, 0.35])})
    >>> night = Accumulator(score="s", metrics=["roc_auc", "brier_score"])
    >>> night.update({"label": np.array([0, 1]), "s": np.array([0.4, 0.8])})
    >>> day.merge(night).result().value("roc_auc")
    0.75
    """

    def __init__(self, **options: Any) -> None:
        check_names(options)
        self._request = Request.checked(options)
        if self._request.scope == "partition":
            raise OptionError(
                "cluster_scope='partition' needs data in files: batches have no partitions; use global ids"
            )
        self._given = options
        self._engine = ThreadEngine.start(**{name: self._request.options[name] for name in RUN_OPTIONS})
        self._lock = new_lock(threading.RLock, self._cut_off)
        self._failed: str | None = None
        self._wanted: list[MetricRequest] = []
        self._plan: Plan | None = None
        self._states: dict[Any, Any] = {}
        self._builders: dict[Spec, Builder] = {}
        self._labels: LabelCounts | None = None  # of the rows in the builders
        self._rows = 0  # rows passed in so far, including those left out by policies

    def update(self, batch: Any) -> None:
        """Fold a batch of rows; an empty batch changes nothing.

        Parameters
        ----------
        batch : Arrow table, record batch or reader, pandas or polars frame, or dict of arrays of equal length
            Must have the columns that the options name, with the types of the first batch or narrower ones. The whole
            batch is held in memory, because all of it is checked before any row is counted.

        Raises
        ------
        OptionError
            If `batch` has another type, such as a path or a list. Use `streameval.evaluate` for files.
        StreamevalError
            If `streameval.evaluate` would refuse the rows; the whole batch is then left out. If folding itself fails
            (out of memory, disk full, interrupt), part of the batch may have been counted, and every later call
            raises `FormatError`.
        """
        if not isinstance(batch, Mapping) and not scan.holds_rows(batch):
            raise OptionError(
                f"cannot update an Accumulator with data of type {type(batch).__name__}; give an Arrow table, batch or "
                "reader, a frame, or a dict of arrays, one after the other (files are read by evaluate)"
            )
        if isinstance(batch, Mapping):
            batch = scan.from_mapping(batch, self._request.columns)
        with self._lock:
            self._check()
            try:
                scanned = self._request.scan(batch, threads=1)
            except MissingInputError:
                return  # an empty batch
            pieces, earlier = [replace(piece, name="the batch") for piece in scanned.pieces], self._plan
            try:
                plan = self._begin(without_views(scanned.schema))
                rows, labels = self._decode(pieces, plan)
            except BaseException:
                self._plan = earlier  # a refused batch must not fix the types
                raise
            with self._losing_rows():
                if not self._builders:
                    capacity = self._engine.capacity(plan)
                    self._builders = {spec: spec.builder(self._engine.budget, capacity) for spec in plan.specs}
                for each in rows:
                    hand_over(each, self._builders, plan.label)
                self._labels = labels
            self._rows += sum(piece.rows for piece in pieces)

    def _decode(self, pieces: Sequence[Piece], plan: Plan) -> tuple[list[Batch], LabelCounts | None]:
        """The decoded rows of a batch, and the label counts of all in the builders; raises if a value is refused."""
        reader = label_reader(plan)
        rows = batch_rows(plan.schema, self._engine.capacity(plan), self._engine.budget)
        read = batches(pieces, plan, reader, rows, self._rows)
        decoded = [batch for _, _, batch in read if batch is not None]
        labels = None if reader is None else reader.state()
        if labels is not None:
            labels = labels if self._labels is None else self._labels.merge(labels)
            try:
                self._states[plan.label].merge(labels).check()
            except LabelError as error:
                raise LabelError(f"the batch, with those before: {error}") from None
        for spec in dict.fromkeys(map(ungrouped, plan.specs)):
            for each in decoded if spec.traits.refuses_missing else ():
                if any(_misses(each.columns[name]) for name in spec.columns):
                    refusing = {spec: spec.builder(Budget(), each.label.size)}
                    hand_over(each, refusing, plan.label)  # raises for refused values
        return decoded, labels

    @contextmanager
    def _losing_rows(self) -> Iterator[None]:
        """Refuse all later calls if this one fails: builders have taken part of its rows, or cannot be read twice."""
        try:
            yield
        except BaseException as error:
            self._failed = f"{type(error).__name__}: {error}"
            raise

    def merge(self, other: Any) -> Self:
        """Add the rows of another accumulator with the same options, which is left unchanged; returns self.

        Raises
        ------
        IncompatibleStatesError
            If `other` is not an accumulator, has other options, or has a column of another type.
        """
        if not isinstance(other, Accumulator):
            raise IncompatibleStatesError(f"cannot merge an Accumulator with {type(other).__name__}")
        # not under the lock: two accumulators that merge with each other would deadlock
        given, schema, added = Accumulator._held(other)
        with self._lock:
            self._check()
            mine, theirs = record_options(self._request.options), record_options(given)
            if mine != theirs:
                differ = ", ".join(sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)))
                raise IncompatibleStatesError(
                    f"cannot merge accumulators that differ in {differ}; make both with the same options"
                )
            if schema is not None:
                plan = self._begin(schema, IncompatibleStatesError)
                states = self._merge_builders()
                if states.keys() != added.keys():
                    other_types = [field.name for field in schema if field.type != plan.schema.field(field.name).type]
                    raise IncompatibleStatesError(
                        f"cannot merge accumulators of columns that differ in type: {', '.join(other_types)}; cast them"
                    )
                self._states = {spec: states[spec].merge(state) for spec, state in added.items()}
            return self

    def _held(self) -> tuple[dict[str, object], pa.Schema | None, dict[Spec, State]]:
        """Options, types and states."""
        with self._lock:
            self._check()
            return dict(self._request.options), self._plan and self._plan.schema, self._merge_builders()

    def result(self) -> Evaluation:
        """The evaluation of all rows so far; more rows may be added afterwards.

        Raises
        ------
        MissingInputError
            If there are no rows.
        DataError
            If the labels or weights cannot be evaluated.
        """
        with self._lock:
            self._check()
            if self._plan is None:
                raise MissingInputError("there are no rows to evaluate: update the accumulator first")
            states = self._merge_builders()
            states[self._plan.label].check_found("all batches")
            result = finalize_all(self._engine, self._request, ["the batches"], self._wanted, Folded(states))
        return replace(result, options=record_options(self._request.options))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write options and states to the directory `path`; the result of an earlier `save` there is replaced.

        Raises
        ------
        OptionError
            If the options include metric objects, which cannot be saved, or the directory holds other files.
        StoreError
            If the directory cannot be written.
        """
        with self._lock:
            self._check()
            if own := [metric for metric in self._request.options["metrics"] if not isinstance(metric, str)]:
                raise OptionError(
                    f"metric {own[0].name!r} is an object, which cannot be saved; name metrics of the catalogue"
                )
            options = record_options(self._request.options)
            if "pos_label" in options:
                options["pos_label"] = self._request.label.pos_label  # text stands for bytes of any kind
            folder = Path(path)
            try:
                write_index(folder, options, self._plan and self._plan.schema, self._merge_builders().values())
            except SpillError:
                raise  # spilling failed, not this directory
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise StoreError(f"{folder}: cannot be written ({why}); choose another directory") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str], **run: Any) -> Self:
        """Read an accumulator that `save` wrote; it can be updated and merged further.

        Parameters
        ----------
        path : str or path of the directory
        **run
            ``memory``, ``spill`` and ``threads`` of this process.

        Raises
        ------
        FormatError
            If the directory holds no accumulator, or one that is damaged or of another format version.
        OptionError
            If `run` has another option.
        """
        if other := [name for name in run if name not in RUN_OPTIONS]:
            names = ", ".join(RUN_OPTIONS)
            raise OptionError(f"load takes no option {other[0]!r}: the saved accumulator decides it; it takes {names}")
        folder = Path(path)
        options, schema, stored = read_index(folder)
        files = StateFiles(Location.of(str(folder)), "save the accumulator again", "no longer exists; ")
        return cls._of({**options, **run}, schema, lambda budget: [files.read(name, budget) for name in stored])

    @classmethod
    def _of(cls, options: Mapping[str, object], schema: pa.Schema | None, read: Callable[[Budget], list[Any]]) -> Self:
        """An accumulator with the states that `read` returns."""
        made = cls(**options)
        if schema is None:
            return made
        specs, states = list(made._begin(schema).empty()), read(made._engine.budget)
        if len(specs) != len(states):
            raise FormatError(
                f"there are {len(states)} states where {len(specs)} are due; save or send the accumulator again"
            )
        for spec, state in zip(specs, states, strict=True):
            if state.spec != spec:
                raise FormatError(
                    f"there is a state of {state.spec} where {spec} is due; save or send the accumulator again"
                )
        made._states, made._rows = dict(zip(specs, states, strict=True)), states[0].seen  # labels come first
        return made

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        """Pickle the options, the schema and the states."""
        with self._lock:
            self._check()
            states = list(self._merge_builders().values())
            return self._sent, (self._given, self._plan and self._plan.schema, states)

    @classmethod
    def _sent(cls, options: dict[str, object], schema: pa.Schema | None, states: list[State]) -> Self:
        """Unpickle an accumulator."""
        return cls._of(options, schema, lambda _: states)

    def __repr__(self) -> str:
        """The options that affect results."""
        return f"Accumulator({', '.join(f'{k}={v!r}' for k, v in record_options(self._request.options).items())})"

    def _cut_off(self) -> None:
        self._failed = "another thread was using the accumulator when this process was forked"

    def _check(self) -> None:
        if self._failed:
            raise FormatError(
                f"rows were lost when the machine failed ({self._failed}); start again, or from the last save"
            )

    def _begin(self, schema: pa.Schema, refusal: type[Exception] = SchemaError) -> Plan:
        """Plan the states from the types of the first batch; later types must widen to these without loss."""
        schema = pa.schema([pa.field(field.name, field.type) for field in schema])
        if self._plan is None:
            piece = Piece("", "the batch", 0, 0, 0, source=TableSource(schema.empty_table()))
            resampling = self._request.resampling
            resampling.check(schema, "the batch")
            self._wanted = planned(self._request, Scan(schema, (piece,), 0, 0))
            specs = list_specs(self._wanted, resampling)
            self._plan = Plan(schema, self._request.label, self._request.weight, specs)
            self._states = self._plan.empty()
        for field in schema:
            due = self._plan.schema.field(field.name).type
            if widened([field.type, due]) != due:
                raise refusal(f"column {field.name!r} has type {field.type} where the first batch had {due}; cast it")
        return self._plan

    def _merge_builders(self) -> dict[Any, Any]:
        """The states of all rows; the content of the builders is merged into them."""
        if self._plan is None or (self._labels is None and not self._builders):
            return self._states
        with self._losing_rows():
            new = {self._plan.label: self._labels} | {spec: one.state() for spec, one in self._builders.items()}
            self._states = {spec: state.merge(new[spec]) for spec, state in self._states.items()}
        self._builders, self._labels = {}, None
        return self._states


def _misses(column: pa.Array) -> bool:
    """Whether a column has nulls or NaN."""
    if pa.types.is_dictionary(column.type):
        return bool(column.null_count or column.dictionary.null_count or _misses(column.dictionary))
    return bool(column.null_count or (pa.types.is_floating(column.type) and np.isnan(column.to_numpy()).any()))
