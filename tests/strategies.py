"""What the tests draw: columns of every type with everything that is awkward in them, and the catalogue of states.

A *subject* is one state to test: its spec, how a column for it is drawn, and how rows are folded into it. The common
tests of `test_laws.py` run over all of them.
"""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.states import cluster_counts, cluster_sizes
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped.keys import Blocks, By, Labelled
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.keyed import builder as keyed_builder
from streameval.states.keyed import counts as runs
from streameval.states.keyed import hot
from streameval.states.keyed.ids import id_type
from streameval.states.labels import ClassReader, ClassSpec, LabelReader, LabelSpec
from streameval.states.protocol import Batch
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.digests import DigestsSpec
from streameval.states.scores.draws import BinsSpec
from streameval.states.scores.groups import GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.quantile_sketch import QuantileSpec
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOATS = {pa.float16(): 16, pa.float32(): 32, pa.float64(): 64}
INTEGERS = tuple(starmap(getattr, ((pa, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))))
INTEGER_TYPES = tuple(make() for make in INTEGERS)
SCORE_TYPES = (*FLOATS, *INTEGER_TYPES, pa.bool_(), pa.decimal128(9, 2), pa.decimal128(18, 6), pa.decimal256(18, 0))
ID_TYPES = (
    *INTEGER_TYPES,
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(3),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.int64()),
)
LABEL_TYPES = (pa.bool_(), *INTEGER_TYPES, *FLOATS, pa.decimal128(5, 1))


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def _float_values(kind: pa.DataType) -> st.SearchStrategy[float]:
    """Floats of a width: any, saturated near one, probabilities, logits, and the special ones."""
    width = FLOATS[kind]
    kindly = {16: np.float16, 32: np.float32, 64: np.float64}[width]
    saturated = [float(kindly(1) - kindly(2.0 ** -(11 + k) if width == 16 else 2.0 ** -(24 + k))) for k in range(3)]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.5, float(np.nextafter(kindly(0.5), kindly(0))), 1.0]
    return st.one_of(
        st.sampled_from(special + saturated),
        st.floats(0, 1, width=width),
        st.floats(-8, 8, width=width),
        st.floats(width=width),
    )


def score_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Scores of a type, nulls included."""
    if kind in FLOATS:
        return st.none() | _float_values(kind)
    if pa.types.is_boolean(kind):
        return st.none() | st.booleans()
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        whole = st.integers(-most, most) | st.integers(-5, 5)
        return st.none() | whole.map(lambda value: Decimal(value).scaleb(-kind.scale))
    low, high = _bounds(kind)
    near = [value for base in (low, high, 0, 2**24, 2**51, 2**53, 2**63) for value in range(base - 2, base + 3)]
    return st.none() | st.integers(low, high) | st.sampled_from([value for value in near if low <= value <= high])


def id_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Cluster ids of a type, nulls included."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(plain):
        low, high = _bounds(plain)
        return st.none() | st.integers(low, high) | st.integers(0, 3)
    if pa.types.is_fixed_size_binary(plain):
        return st.none() | st.binary(min_size=plain.byte_width, max_size=plain.byte_width)
    if pa.types.is_binary(plain):
        return st.none() | st.binary(max_size=40)
    return st.none() | st.text(max_size=40)


def label_values(kind: pa.DataType) -> st.SearchStrategy[list[Any]]:
    """A negative and a positive label of a type, and null (or NaN)."""
    if pa.types.is_boolean(kind):
        return st.just([False, True, None])
    if kind in FLOATS:
        negative = st.sampled_from([0.0, -0.0, -1.0, -0.5])
        return st.tuples(negative, st.sampled_from([1.0, 0.5, 2.0, math.inf]), st.sampled_from([None, math.nan])).map(
            list
        )
    if pa.types.is_decimal(kind):
        return st.just([Decimal("0.0"), Decimal("1.5"), None])
    low, high = _bounds(kind)
    return st.tuples(st.sampled_from(sorted({0, max(-1, low), low})), st.sampled_from([1, 2, high]), st.none()).map(
        list
    )


WEIGHTS = st.one_of(st.sampled_from([0.0, 0.25, 1.0, 3.0]), st.floats(1e-90, 1e6), st.floats(1e-9, 1.0))


def picks(rows: int, count: int) -> st.SearchStrategy[list[int]]:
    """Numbers below `count`, one for each row; a draw for each would take longer than most tests."""
    return st.binary(min_size=rows, max_size=rows).map(lambda drawn: [byte % count for byte in drawn])


@st.composite
def columns(draw: st.DrawFn, values: st.SearchStrategy[Any], kind: pa.DataType, rows: int) -> pa.Array:
    """A column of `rows` values from a small pool, so that ties are the rule."""
    pool = draw(st.lists(values, min_size=1, max_size=12))
    taken = draw(picks(rows, len(pool)))
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if kind == pa.float16():
        pool = [None if value is None else np.float16(value) for value in pool]
    array = pa.array([pool[i] for i in taken], plain)
    return array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array


Column = tuple[pa.DataType, st.SearchStrategy[Any]]


@dataclass(frozen=True)
class Subject:
    """One state to test.

    Attributes
    ----------
    name : what the test is called
    spec : the spec of the state
    kind : Arrow type of its column
    values : strategy of that column's values
    others : type and values of further columns, by name
    sketch : whether the state is approximate and depends on how rows are cut into tasks
    """

    name: str
    spec: Any
    kind: pa.DataType
    values: st.SearchStrategy[Any]
    others: tuple[tuple[str, Column], ...] = ()
    sketch: bool = False

    @property
    def weighted(self) -> bool:
        """Whether the state holds weights."""
        return getattr(getattr(self.spec, "inner", self.spec), "weighted", False)

    def labelled(self, weight: Any) -> Any:
        """Which rows have a label, by the column weight; None if the state does not count the others."""
        counts = not isinstance(self.spec, LabelSpec) and self.spec.traits.unlabelled and not self.weighted
        return np.asarray(weight) >= 1 if counts else None

    @property
    def another(self) -> Any:
        """A spec whose states do not merge with those of this one."""
        if isinstance(self.spec, GroupedSpec):
            return replace(self.spec, inner=replace(self, spec=self.spec.inner).another)
        if isinstance(self.spec, ContingencySpec):
            return replace(self.spec, classes="another")
        return replace(self.spec, column="another")

    @st.composite
    @staticmethod
    def _table(draw: st.DrawFn, self: Subject, copies: st.SearchStrategy[int]) -> pa.Table:
        rows = draw(st.integers(0, 30))
        values = self.values
        if isinstance(self.spec, LabelSpec):
            values = st.sampled_from(draw(label_values(self.kind)))
        others = {name: draw(columns(more, kind, rows)) for name, (kind, more) in self.others}
        weight, label = [1.0] * rows, np.array(draw(picks(rows, 2)), np.uint8)
        if self.weighted or self.labelled([]) is not None:
            weight = draw(st.lists(WEIGHTS, min_size=rows, max_size=rows))
            label = label if self.weighted else label * self.labelled(weight)
        table = pa.table(
            {
                "column": draw(columns(values, self.kind, rows)),
                "label": pa.array(label, pa.uint8()),
                "weight": pa.array(weight, pa.float64()),
                "partition": pa.array(["ab"[i] for i in draw(picks(rows, 2))], pa.string()),
                **others,
            }
        )
        return numbered(pa.concat_tables([table] * draw(copies)).combine_chunks())

    def tables(self, copies: st.SearchStrategy[int] | None = None) -> st.SearchStrategy[pa.Table]:
        """Tables with the columns column, label, weight, partition, the others and row; sometimes one many times."""
        return self._table(self, st.sampled_from([1, 1, 1, 100]) if copies is None else copies)

    def fold(
        self,
        table: pa.Table,
        batch_rows: int = 1 << 20,
        capacity: int = 64,
        budget: Budget | None = None,
        into: Any = None,
    ) -> Any:
        """The state of a table's rows, by the spec's builder or by another."""
        if isinstance(self.spec, LabelSpec):
            of_classes = isinstance(self.spec, ClassSpec)
            reader = ClassReader(self.spec, self.kind) if of_classes else LabelReader(self.spec, self.kind)
            for batch in table.to_batches(max_chunksize=batch_rows):
                reader.read(batch.column("column"), "input")
            return reader.state()
        builder = into or self.spec.builder(budget or Budget(1 << 30), capacity)
        for batch in table.to_batches(max_chunksize=batch_rows):
            for partition in ("a", "b"):
                part = batch.filter(pa.compute.equal(batch.column("partition"), partition))
                label = part.column("label").to_numpy()
                weight = part.column("weight").to_numpy() if self.weighted else None
                read = {name: part.column(name) for name in self.spec.columns}
                row = part.column("row").to_numpy() if "row" in part.schema.names else None
                labelled = self.labelled(part.column("weight").to_numpy())
                rows = Batch(label, weight, read, partition, kept=row, origin=partition, labelled=labelled)
                builder.update(rows)
        return None if into else builder.state()


def numbered(table: pa.Table) -> pa.Table:
    """The table with the column row, which names each row for good, wherever it goes."""
    return table.append_column("row", pa.array(np.arange(table.num_rows), pa.int64()))


def _subjects() -> list[Subject]:
    found = []
    for kind in SCORE_TYPES:
        for weighted in (False, True):
            if weighted and kind not in {pa.float32(), pa.float64(), pa.int32(), pa.uint64(), pa.decimal128(9, 2)}:
                continue
            spec = ScoreSpec("column", score_type(kind), weighted, "drop")
            found.append(Subject(f"scores-{kind}{'-weighted' * weighted}", spec, kind, score_values(kind)))
    for kind in (pa.float32(), pa.float64(), pa.int64(), pa.uint64(), pa.decimal128(18, 6)):
        for weighted in (False, True):
            spec = HistogramSpec("column", score_type(kind), weighted, "drop")
            found.append(Subject(f"histogram-{kind}{'-weighted' * weighted}", spec, kind, score_values(kind)))
    for kind in ID_TYPES:
        for scope, nulls in (("global", "singleton"), ("partition", "drop")):
            spec = ClusterSpec("column", id_type(kind), scope, nulls)
            found.append(Subject(f"clusters-{kind}-{scope}", spec, kind, id_values(kind)))
            if kind in (pa.int64(), pa.string()):
                bare = replace(spec, rows="both")
                found.append(Subject(f"clusters-{kind}-{scope}-unlabelled", bare, kind, id_values(kind)))
    found += [Subject(f"labels-{kind}", LabelSpec("column", nulls="drop"), kind, st.nothing()) for kind in LABEL_TYPES]
    classes = ClassSpec("column", nulls="drop", classes=(("p", "1"), ("q", "0")))
    found += [Subject(f"classes-{kind}", classes, kind, st.nothing()) for kind in (pa.int64(), pa.float32())]
    return found + _cells() + _group_scores() + _blocks() + _sampled()


def _blocks() -> list[Subject]:
    """Counts by block on a grid of so few bins that it is made coarser all the time."""
    unit: Column = (pa.int64(), st.none() | st.integers(0, 2) | st.integers(-(2**63), 2**63 - 1))
    found = []
    for kind in (pa.float32(), pa.float64(), pa.int32(), pa.uint64(), pa.decimal128(9, 2)):
        for name, more, weighted in (("group", (("group", unit),), False), (None, (), True)):
            spec = BlockSpec("column", score_type(kind), weighted, "drop", name, 5, 4, pointed=True)
            found.append(Subject(f"blocks-{kind}-{name or 'rows'}", spec, kind, score_values(kind), more))
    by: Column = (pa.string(), st.none() | st.sampled_from(["", "DE", "é"]))
    for one in (found[0], found[3]):
        spec = GroupedSpec(one.spec, By(("by",)))
        found.append(replace(one, name=f"{one.name}-by-value", spec=spec, others=(*one.others, ("by", by))))
    return found


def _cells() -> list[Subject]:
    """Contingency states: ids of one and of two words, on either side."""
    found = []
    for kind, other in itertools.product((pa.int64(), pa.string()), (pa.uint32(), pa.binary())):
        for scope, nulls in (("global", "singleton"), ("partition", "drop")):
            spec = ContingencySpec("column", "cluster", id_type(kind), id_type(other), scope, nulls)
            more = (("cluster", (other, id_values(other))),)
            found.append(Subject(f"cells-{kind}-{other}-{scope}", spec, kind, id_values(kind), more))
    return found


def _group_scores() -> list[Subject]:
    """Scores by group: narrow and wide scores, ids of all kinds."""
    found = []
    for kind, group in (
        (pa.float32(), pa.int64()),
        (pa.float32(), pa.uint64()),
        (pa.int32(), pa.int16()),
        (pa.float64(), pa.int64()),
        (pa.uint64(), pa.string()),
        (pa.decimal128(9, 2), pa.dictionary(pa.int8(), pa.int64())),
    ):
        spec = GroupScoreSpec("column", score_type(kind), "group", id_type(group), "drop")
        more = (("group", (group, id_values(group))),)
        found.append(Subject(f"group-scores-{kind}-{group}", spec, kind, score_values(kind), more))
    return found


def _sampled() -> list[Subject]:
    """Sketches, and counts of a sample."""
    kind, finite = pa.float64(), st.none() | st.floats(-8, 8) | st.sampled_from([math.nan, math.inf, -math.inf, 0.5])
    return [
        Subject("bins", BinsSpec("column", "f8", "drop", 0.5, edges=(-1.0, 0.25, 0.5)), kind, finite),
        Subject("digests", DigestsSpec("column", "f8", "drop"), kind, finite, sketch=True),
        Subject("sketch", QuantileSpec("column"), kind, finite, sketch=True),
    ]


def _grouped() -> list[Subject]:
    """States of every kind that can be split, split by a value, a tuple of values, units and rows."""
    text: Column = (pa.string(), st.none() | st.sampled_from(["", "DE", "3:sDE", "é"]) | st.text(max_size=3))
    number: Column = (pa.int64(), st.none() | st.integers(0, 2) | st.integers(-(2**63), 2**63 - 1))
    keys = {
        "value": (By(("group",)), (("group", text),)),
        "tuple": (By(("group", "column")), (("group", text),)),
        "units": (Blocks("group", 5), (("group", number),)),
        "rows": (Blocks(count=3), ()),
        "strata": (Labelled("group"), (("group", text),)),
        "labels": (Labelled(), ()),
        "drawn": (Labelled(unit="group"), (("group", number),)),
    }
    inner = {s.name: s for s in SINGLE}
    return [
        replace(s, name=f"{name}-by-{by}", spec=GroupedSpec(s.spec, keys[by][0]), others=s.others + keys[by][1])
        for name, ways in SPLIT.items()
        for by in ways
        if (s := inner[name])
    ]


SPLIT = {
    "scores-halffloat": ["value"],
    "scores-float-weighted": ["tuple", "units"],
    "scores-double": ["rows", "strata", "labels"],
    "scores-float": ["drawn"],
    "scores-uint64-weighted": ["value"],
    "scores-decimal128(9, 2)": ["tuple"],
    "scores-int32": ["units", "tuple"],
    "histogram-float-weighted": ["value"],
    "clusters-int64-global": ["value", "rows"],
    "clusters-string-partition": ["tuple", "units"],
    "clusters-uint64-partition": ["rows"],
    "clusters-dictionary<values=string, indices=int32, ordered=0>-global": ["units"],
    "cells-int64-uint32-partition": ["value"],
    "cells-int64-uint32-global": ["value"],
    "cells-string-binary-partition": ["value"],
    "cells-string-binary-global": ["rows", "tuple"],
}
SINGLE = _subjects()
GROUPED = _grouped()
SUBJECTS = SINGLE + GROUPED


def difference(one: Any, other: Any) -> str:
    """How two states differ, weights beyond 1e-12; empty if they do not.

    A text and no assertion: a failed assertion keeps its frames alive, and with them every state in them.
    """
    if one.header().keys() != other.header().keys() or one.spec != other.spec:
        return f"{one.header()} is not {other.header()}"
    for name, mine in one.header().items():
        theirs = other.header()[name]
        if not _alike(name, mine, theirs):
            return f"{name}: {mine} is not {theirs}"
    first, second = (pa.Table.from_batches(state.to_arrow(), state.spec.schema) for state in (one, other))
    for name in first.schema.names:
        mine, theirs = (_values(table.column(name)) for table in (first, second))
        close = (
            name.endswith(("_weight", "facts"))
            and mine.size == theirs.size
            and np.allclose(mine, theirs, rtol=1e-12, atol=1e-300)
        )
        if not close and not np.array_equal(mine, theirs):
            return f"{name}: {mine} is not {theirs}"
    weighted = getattr(getattr(one.spec, "inner", one.spec), "weighted", False)
    return "" if weighted or one == other else "== says they differ"


def _alike(name: str, mine: Any, theirs: Any) -> bool:
    """Whether two entries of headers are equal, weights to 1e-12."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(_alike(key, mine[key], theirs[key]) for key in mine)
    return mine == theirs or (name == "nan_weights" and np.allclose(mine, theirs, rtol=1e-12, atol=1e-300))


def _values(column: pa.ChunkedArray) -> Any:
    """The values of a column, those of lists one after the other."""
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
    return column.to_numpy()


def by_name(subjects: list[Subject] | None = None) -> Callable[[Any], Any]:
    """Parametrise a test over subjects."""
    chosen = SUBJECTS if subjects is None else subjects
    return pytest.mark.parametrize("subject", [pytest.param(subject, id=subject.name) for subject in chosen])


@contextmanager
def sizes(*, tiny: bool) -> Iterator[None]:
    """The engine's constants unchanged, or small enough that a few rows take every path."""
    with pytest.MonkeyPatch.context() as patch:
        if tiny:
            patch.setattr(hot, "LEARN", 6)
            patch.setattr(hot, "FULL", 700)
            patch.setattr(cluster_sizes, "LARGEST", 5)
            patch.setattr(cluster_counts, "_SMALL", 3)
            patch.setattr(keyed_builder, "BLOCK", 4)
            patch.setattr(runs, "CHUNK", 8)
            patch.setattr(runs, "_DENSE", 4)
            patch.setattr(runs, "SLAB", 16)
            patch.setattr(runs, "REFINE", 16)
            patch.setattr(runs, "WEIGHED", 16)
            patch.setattr(runs.KeyedCounts.intervals, "__defaults__", (5,))
        yield
