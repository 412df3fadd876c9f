"""Codec: State ↔ versioned Arrow batches, independent of paths and files.

A stored state is the table of the state. The schema metadata hold everything else:

====================  ======================================================================
``streameval.kind``     kind of the spec, such as ``score_counts``
``streameval.version``  version of that kind's format
``streameval.library``  version of streameval that wrote it
``streameval.rows``     numbers of negatives and positives, which `load` verifies
``streameval.header``   the spec and small facts, as JSON
====================  ======================================================================

Every batch carries this schema, and there is always at least one batch, possibly empty. Only the current version of a
kind is read; for an unknown kind or another version, the error names it.

Memory: the state within its budget; one batch while reading, and while writing those of `_TOGETHER` items.

>>> from streameval.states.cluster_counts import ClusterSpec
>>> schema, batches = dump(ClusterSpec("campaign").empty())
>>> schema.metadata[b"streameval.kind"], load(batches) == ClusterSpec("campaign").empty()
(b'cluster_counts', True)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval import __version__
from streameval.budget import Budget
from streameval.errors import FormatError
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.facts import check_columns, check_facts, check_spec
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.keyed.layout import cut
from streameval.states.labels import ClassSpec, LabelSpec
from streameval.states.rounds import Mapper, buckets, one_by_one
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.digests import DigestsSpec
from streameval.states.scores.draws import BinsSpec
from streameval.states.scores.groups import GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.quantile_sketch import QuantileSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streameval.states.protocol import State, StoredSpec

KINDS: dict[str, type[StoredSpec]] = {
    spec.kind: spec
    for spec in (
        ScoreSpec,
        HistogramSpec,
        ClusterSpec,
        ContingencySpec,
        LabelSpec,
        ClassSpec,
        QuantileSpec,
        DigestsSpec,
        BinsSpec,
        GroupedSpec,
        GroupScoreSpec,
        BlockSpec,
    )
}
_PREFIX = "streameval."
_TOGETHER = 1 << 21  # items of the parts of a state that are read at a time
_SMALL = 1 << 20  # bytes; smaller batches are joined: checking and decoding one costs as much as thousands of rows


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The metadata of a stored state, parsed and checked."""

    spec: StoredSpec
    rows: list[int]
    header: dict[str, Any]

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, small ones joined, all validated; raises `FormatError` for unexpected columns and for nulls."""
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if held and size + batch.nbytes > _SMALL:
                yield self._sound(held)
                held, size = [], 0
            held.append(self._fitting(batch))
            size += batch.nbytes
            if size >= _SMALL:  # at once, so that a large batch is gone before the next is read
                yield self._sound(held)
                held, size = [], 0
        if held:
            yield self._sound(held)

    def _fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch; raises if it has the wrong columns."""
        schema = self.spec.schema
        if not batch.schema.equals(schema):
            have = ", ".join(f"{field.name} {field.type}" for field in batch.schema)
            want = ", ".join(f"{field.name} {field.type}" for field in schema)
            kind = self.spec.kind
            raise FormatError(f"the stored {kind} has the columns ({have}) instead of ({want}); store the state again")
        return batch

    def _sound(self, held: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Batches as one; raises if it has nulls, or counts or weights that no rows have."""
        batch = held[0] if len(held) == 1 else pa.concat_batches(held)
        if any(column.null_count for column in batch.columns):
            raise FormatError(f"the stored {self.spec.kind} has nulls, which a state never has; store it again")
        try:
            check_columns(batch)
        except ValueError as error:
            raise FormatError(f"the stored {self.spec.kind} is damaged: {error}; store it again") from error
        return batch


def dump(state: State, each: Mapper = one_by_one) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Serialise a state as Arrow batches.

    Parameters
    ----------
    state : State
        A state of a kind in `KINDS`.
    each : callable
        Maps a function over parts of the state, several at a time.

    Returns
    -------
    pyarrow.Schema
        The schema of every batch, with the metadata.
    iterator of pyarrow.RecordBatch
        At least one batch; generated lazily, since a state may be larger than memory.
    """
    schema = schema_of(state)
    return schema, or_empty(chain.from_iterable(_windows(divide_state(state).values(), schema, each)), schema)


def schema_of(state: State) -> pa.Schema:
    """The schema of every batch of a stored state, with the metadata; an outline has that of its state."""
    spec, totals = state.spec, state.totals()
    facts = {
        "kind": spec.kind,
        "version": str(spec.version),
        "library": __version__,
        "rows": json.dumps([totals.neg, totals.pos]),
        "header": json.dumps(state.header(), sort_keys=True),
    }
    return spec.schema.with_metadata({_PREFIX + name: value for name, value in facts.items()})


def divide_state(state: State) -> dict[str, list[State]]:
    """States whose rows, one after another, are those of the state: by the name of a run, then by shard.

    Only an additive state is divided.
    """
    runs = state.runs()
    if not (state.spec.traits.additive and runs):
        return {"": [state]}
    rest = {name: counts.range(0, 0) for name, counts in runs.items()}
    return {
        name: [state.with_runs(rest | {name: counts.range(*shard)}) for shard in buckets(state)]
        for name, counts in runs.items()
    }


def stored_batches(state: State, schema: pa.Schema, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
    """The stored batches of a state, or of a part of it, under the schema of the whole."""
    for batch in state.to_arrow(budget):
        yield batch.cast(schema) if batch.schema != schema else batch.replace_schema_metadata(schema.metadata)


def _windows(runs: Iterable[Sequence[State]], schema: pa.Schema, each: Mapper) -> Iterator[Iterable[pa.RecordBatch]]:
    """The batches of all parts, several parts at a time; those of a single or a very large part are not collected."""
    for parts in runs:
        for first, stop in cut(np.array([1 + _items(part) for part in parts]), _TOGETHER):
            if stop - first == 1:
                yield stored_batches(parts[first], schema)
            else:
                yield from each(lambda part: list(stored_batches(part, schema)), parts[first:stop])


def _items(state: State) -> int:
    """Stored items in the keyed counts of a state."""
    return sum(int(counts.outline.items.sum()) for counts in state.runs().values())


def or_empty(found: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches; one empty batch if there are none."""
    empty = True
    for batch in found:
        empty = False
        yield batch
    if empty:
        yield pa.RecordBatch.from_pylist([], schema)


def load(batches: pa.RecordBatchReader | Iterable[pa.RecordBatch], budget: Budget | None = None) -> State:
    """Read a state back.

    Parameters
    ----------
    batches : reader, or iterable of pyarrow.RecordBatch
        The rows that `dump` wrote, divided into batches in any way.
    budget : Budget, optional
        Owns the memory of the state.

    Returns
    -------
    State

    Raises
    ------
    FormatError
        If the batches are not a state, have an unknown kind or version, or are damaged or incomplete.
    """
    schema, rest = _open(batches)
    metadata = _read_metadata(schema)
    return _state(metadata, metadata.checked(rest), budget)


def restate(state: State, spec: StoredSpec, budget: Budget | None = None) -> State:
    """The same state under another spec whose table would be equal.

    Parameters
    ----------
    state : State
    spec : Spec
        May differ from the state's spec only in a policy for rows that the state does not contain.
    budget : Budget, optional
        Owns the memory of the new state.

    Examples
    --------
    >>> from streameval.states.cluster_counts import ClusterSpec
    >>> restate(ClusterSpec("id").empty(), ClusterSpec("id", nulls="drop")) == ClusterSpec("id", nulls="drop").empty()
    True
    """
    schema, batches = dump(state)
    metadata = _read_metadata(schema)
    return _state(replace(metadata, spec=spec), metadata.checked(batches), budget)


def _state(metadata: _Metadata, rest: Iterable[pa.RecordBatch], budget: Budget | None) -> State:
    """The state of validated batches."""
    try:
        state = metadata.spec.from_arrow(metadata.header, rest, budget or Budget())
        totals = state.totals()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        raise FormatError(
            f"the stored {metadata.spec.kind} is damaged ({type(error).__name__}: {error}); store the state again"
        ) from error
    if [totals.neg, totals.pos] != metadata.rows:
        raise FormatError(
            f"the stored {metadata.spec.kind} is incomplete or damaged: its metadata give {metadata.rows} negatives "
            f"and positives, its table has {[totals.neg, totals.pos]}; store the state again"
        )
    return state


def load_together(stored: Sequence[tuple[pa.Schema, Iterable[pa.RecordBatch]]], budget: Budget | None = None) -> State:
    """Read several states of one spec as their union.

    The tables of an additive spec (`streameval.states.protocol.Traits`) are read as one table, which is faster than
    merging states. Other states are read and merged in the given order.

    Parameters
    ----------
    stored : sequence of (schema, batches)
        At least one state, each as `dump` returned it.
    budget : Budget, optional
        Owns the memory of the state.

    Raises
    ------
    FormatError
        As for `load`; also if the specs differ. The message does not name the faulty state.

    Examples
    --------
    >>> from streameval.states.cluster_counts import ClusterSpec
    >>> load_together([dump(ClusterSpec("campaign").empty())] * 2) == ClusterSpec("campaign").empty()
    True
    """
    several = [_read_metadata(schema) for schema, _ in stored]
    first = several[0]
    if any(metadata.spec != first.spec for metadata in several):
        raise FormatError(
            f"cannot read states of different specs together: {', '.join(sorted({str(x.spec) for x in several}))}"
        )
    if not first.spec.traits.additive:
        pairs = zip(several, stored, strict=True)
        states = (_state(metadata, metadata.checked(batches), budget) for metadata, (_, batches) in pairs)
        return reduce(lambda one, other: one.merge(other), states)
    return _state(_sum_metadata(several), first.checked(chain.from_iterable(batches for _, batches in stored)), budget)


def _sum_metadata(several: Sequence[_Metadata]) -> _Metadata:
    """The metadata of several additive states that are read as one."""
    first = several[0]
    facts = [name for name in first.header if name != "spec"]  # each fact is a list of numbers
    try:
        sums = {name: [sum(side) for side in zip(*(x.header[name] for x in several), strict=True)] for name in facts}
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"the metadata of a stored {first.spec.kind} are damaged ({type(error).__name__}: {error}); store it again"
        ) from error
    rows = [sum(metadata.rows[side] for metadata in several) for side in (0, 1)]
    return _Metadata(first.spec, rows, first.header | sums)


def _open(batches: pa.RecordBatchReader | Iterable[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and an iterator over all batches."""
    if isinstance(batches, pa.RecordBatchReader):
        return batches.schema, iter(batches)
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        raise FormatError(
            "there are no batches, so there is no state; a stored state has at least one batch, possibly empty"
        )
    return first.schema, chain([first], rest)


def _read_metadata(schema: pa.Schema) -> _Metadata:
    """Kind, version, spec and header from the metadata of a schema."""
    facts = {key.decode(): value.decode(errors="replace") for key, value in (schema.metadata or {}).items()}
    kind = facts.get(_PREFIX + "kind")
    if kind is None:
        raise FormatError("these batches are not a streameval state: their schema's metadata lack 'streameval.kind'")
    if kind not in KINDS:
        raise FormatError(
            f"cannot read a state of kind {kind!r}; this version of streameval reads {', '.join(sorted(KINDS))}"
        )
    spec = KINDS[kind]
    if facts.get(_PREFIX + "version") != str(spec.version):
        found, writer = facts.get(_PREFIX + "version"), facts.get(_PREFIX + "library", "an unknown version")
        raise FormatError(
            f"cannot read version {found} of {kind}, written by streameval {writer}; "
            f"streameval {__version__} reads version {spec.version}: fold the data again, or read it with the version "
            "that wrote it"
        )
    try:
        header = json.loads(facts[_PREFIX + "header"])
        metadata = _Metadata(spec(**header["spec"]), json.loads(facts[_PREFIX + "rows"]), header)
        check_spec(metadata.spec)
        check_facts(metadata.spec, header, metadata.rows)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FormatError(
            f"the metadata of the stored {spec.kind} are damaged ({type(error).__name__}: {error}); store it again"
        ) from error
    return metadata
