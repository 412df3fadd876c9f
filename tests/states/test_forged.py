"""Stored states that nobody folded, although their files have sound checksums: refused before they are used."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refuses

from streameval.errors import FormatError, StreamevalError
from streameval.states import codec
from streameval.states.grouped.keys import By
from streameval.states.grouped.table import parts_of
from streameval.states.labels import LabelSpec

DATA = Path(__file__).parents[1] / "data" / "states"
NAN, INFINITE, HUGE = float("nan"), float("inf"), 1e308

HEADERS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("label_counts.v1", ("values",), ["a", "b"]),  # without a positive label, numbers only
    ("label_counts.v1", ("values",), [0, "b"]),
    ("label_counts.v1", ("values",), [0, NAN]),
    ("label_counts.v1", ("values",), [[0]]),
    ("label_counts.v1", ("neg",), 2**62),
    ("quantile_sketch.v1", ("low",), 2**70),
    ("quantile_sketch.v1", ("high",), 10**400),
    ("quantile_sketch.v1", ("high",), "x"),
    ("quantile_sketch.v1", ("above",), -1),
    ("score_counts-f4-weighted.v1", ("nan_weights", 0), HUGE),
    ("score_counts-f4.v1", ("nan_weights",), [HUGE, HUGE]),
    ("score_counts-u8.v1", ("nan_rows", 0), 1),  # the policy refuses missing scores
    ("score_histogram-f4-weighted.v1", ("nan_weights", 1), HUGE),
    ("score_histogram-f4.v1", ("nan_weights", 0), INFINITE),
    ("score_blocks-f4.v1", ("nan_weights", 0), HUGE),
    ("score_blocks-f4.v1", ("shift", 0), 0),
    ("score_blocks-f4.v1", ("shift", 0), 2**61),
    ("score_blocks-f4.v1", ("spec", "count"), 2**31),  # an empty state has a row for each
    ("score_counts-u8.v1", ("spec", "weighted"), ""),
    ("score_counts-u8.v1", ("spec", "nan"), "skip"),
    ("grouped-score_counts.v1", ("spec", "inner", "spec", "nan"), 0),
    ("sampled_bins.v1", ("spec", "seed"), "3"),
    ("cluster_counts-unsigned.v1", ("dropped_rows", 0), 3),
    ("contingency.v1", ("label_rows", 0), 2**62),
    ("sampled_digests.v1", ("infinite", 0, 0), 2**62),
    ("sampled_bins.v1", ("nan_rows", 0), 2**63),
]
TABLES: list[tuple[str, str, int, Any]] = [
    ("quantile_sketch.v1", "weight", 0, HUGE),
    ("quantile_sketch.v1", "weight", 0, 2.0**63),
    ("quantile_sketch.v1", "mean", 0, NAN),
    ("quantile_sketch.v1", "mean", 0, 7.0),
    ("score_histogram-f4-weighted.v1", "negative_weight", 0, HUGE),
    ("score_histogram-f4-weighted.v1", "negative_weight", 3, 1.0),  # of no rows
    ("score_histogram-f4-weighted.v1", "positive_weight", 0, 5e-324),
    ("score_histogram-f4-weighted.v1", "only", 0, 0),  # a bin with rows that counts as empty
    ("score_histogram-f4-weighted.v1", "only", 0, -(2**63)),
    ("score_histogram-f4.v1", "only", 0, -4602678819172646913),  # a score of another bin
    ("score_histogram-f4.v1", "bin", 0, 690_000),
    ("score_histogram-f4.v1", "negatives", 0, 2**63 - 1),
    ("score_counts-f4-weighted.v1", "negative_weight", 0, HUGE),
    ("score_counts-f4-weighted.v1", "positive_weight", 0, NAN),
    ("score_counts-f4.v1", "key", 0, 2**48),
    ("score_counts-f4.v1", "negatives", 0, 2**62),
    ("score_counts-f4.v1", "negatives", 0, -1),
    ("score_counts-f4-weighted.v1", "negative_weight", 0, -1.0),
    ("score_counts-f4-weighted.v1", "negative_weight", 0, INFINITE),
    ("score_histogram-f4.v1", "negatives", 0, -1),
    ("score_histogram-f4-weighted.v1", "negative_weight", 0, -1.0),
    ("score_histogram-f4-weighted.v1", "negative_weight", 0, NAN),
    ("score_histogram-f4-weighted.v1", "negative_weight", 0, INFINITE),
    ("grouped-score_counts.v1", "key", 2, 2**40),  # of 32-bit scores
    ("cluster_counts-hash-partition.v1", "second", 0, None),
    ("cluster_counts-unsigned.v1", "positives", 0, -1),
    ("contingency.v1", "rows", 6, 2**63 - 2),
    ("contingency.v1", "without_class", 0, 2**62),
    ("contingency.v1", "has_cluster", 0, None),
    ("group_scores-f4.v1", "negatives", 0, 2**62),
    ("group_scores-u8-hash.v1", "positives", 0, -1),
    ("sampled_bins.v1", "low", 0, 5.0),  # above its bin
    ("sampled_bins.v1", "low", 1, NAN),
    ("sampled_bins.v1", "high", 2, INFINITE),
    ("sampled_bins.v1", "bin", 1, 0),
    ("sampled_bins.v1", "bin", 2, 9),
    ("sampled_bins.v1", "counts", 0, [2**62] * 64),
    ("sampled_digests.v1", "rows", 0, HUGE),
    ("sampled_digests.v1", "mean", 0, INFINITE),
    ("sampled_digests.v1", "cell", 0, 64),
    ("score_blocks-f4.v1", "low", 0, 2**63),
    ("score_blocks-f4.v1", "low", 1, 6917529027641081857),  # of the same prefix, above the largest code
    ("score_blocks-f4.v1", "high", 1, 0),
    ("score_blocks-f4.v1", "prefix", 0, 2**63),
    ("score_blocks-f4.v1", "block", 0, 4),
    ("score_blocks-f4.v1", "block", 0, -1),
    ("grouped-score_blocks.v1", "facts", 0, [2.0**40, *[0.0] * 16]),  # a shift
    ("grouped-score_blocks.v1", "facts", 0, [0.0] * 3),
    ("grouped-score_blocks.v1", "group", 0, b""),
    ("grouped-cluster_counts.v1", "facts", 0, [HUGE, *[0.0] * 5]),
    ("grouped-cluster_counts.v1", "facts", 0, [2.0**62, *[0.0] * 5]),
    ("grouped-cluster_counts.v1", "facts", 0, [0.0, 0.0, 0.0]),
    ("grouped-cluster_counts.v1", "group", 0, b"2:i4"),  # of blocks 0 to 3
    ("grouped-cluster_counts.v1", "group", 0, b"3:i-1"),
    ("grouped-score_counts.v1", "facts", 0, [0.0, 0.0, HUGE, 0.0]),
    ("grouped-score_counts.v1", "group", 0, b"-2:sa"),  # its length leads back to its beginning
    ("grouped-score_counts.v1", "group", 0, b"9:sa"),
    ("grouped-score_counts.v1", "group", 0, b"2:za"),
    ("grouped-score_counts.v1", "group", 0, b"2:sa2:sb"),
    ("grouped-score_counts.v1", "group", 0, b""),
    ("grouped-score_counts.v1", "group", 0, b"2:s\xff"),
    ("grouped-score_counts.v1", "group", 3, b"2:sb"),
]


@cache
def stored(name: str) -> pa.Table:
    """A golden file, which loads."""
    table = pq.read_table(DATA / f"{name}.parquet")
    codec.load(batches(table))
    return table


def batches(table: pa.Table) -> list[pa.RecordBatch]:
    """At least one batch."""
    return table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]


def changed(fact: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A fact with another value at a path."""
    if not path:
        return value
    made = list(fact) if isinstance(fact, list) else dict(fact)
    made[path[0]] = changed(made[path[0]], path[1:], value)
    return made


@pytest.mark.parametrize(("name", "path", "value"), HEADERS)
def test_a_forged_header_is_refused(name: str, path: tuple[Any, ...], value: Any) -> None:
    """With a message of one line, and nothing that overflows later, in a merge or a sum."""
    table = stored(name)
    header = changed(json.loads(table.schema.metadata[b"streameval.header"]), path, value)
    forged = table.replace_schema_metadata({**table.schema.metadata, b"streameval.header": json.dumps(header).encode()})
    refuses(FormatError, "damaged", codec.load, batches(forged))


@pytest.mark.parametrize(("name", "column", "row", "value"), TABLES)
def test_a_forged_table_is_refused(name: str, column: str, row: int, value: Any) -> None:
    """Counts and weights beyond all rows, values outside of their bin, names that are none."""
    table = stored(name)
    values = table[column].to_pylist()
    values[row] = value
    at = table.schema.get_field_index(column)
    forged = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    refuses(FormatError, r"damaged|nulls", codec.load, batches(forged))


EXTREMES = [
    -1,
    0,
    1,
    2,
    255,
    2**31,
    2**40,
    2**62,
    2**63,
    2**70,
    10**400,
    0.5,
    -0.0,
    HUGE,
    NAN,
    -INFINITE,
    "x",
    "",
    "f8",
]
FACTS = [*EXTREMES, None, [], {}, [1], [[1]], {"a": 1}, True]


def places(fact: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of a fact and of all that is in it."""
    inner = fact.items() if isinstance(fact, dict) else enumerate(fact[:3]) if isinstance(fact, list) else ()
    return [path, *(place for name, value in inner for place in places(value, (*path, name)))]


def forged_value(value: Any, draw: random.Random) -> Any:
    """Another value of a cell."""
    if isinstance(value, bytes):
        at = draw.randrange(len(value) + 1)
        return draw.choice([value[:at], value + b"\xff" * 9, value[:at] + b"\xff" + value[at + 1 :], bytes(len(value))])
    if isinstance(value, list):
        return draw.choice([value[:-1], [draw.choice(EXTREMES)] * len(value), [*value, 0]])
    if isinstance(value, int) and not isinstance(value, bool):
        return draw.choice([value + 1, value - 1, value ^ 1 << draw.randrange(63), draw.choice(EXTREMES)])
    return draw.choice([True, False, None]) if isinstance(value, bool) else draw.choice(EXTREMES)


def forge(table: pa.Table, draw: random.Random) -> pa.Table:
    """A stored state with a wrong fact, number of rows, cell, column or order; its checksums would be right."""
    kind = draw.choice(["fact", "rows", "cell", "cell", "column", "order"] if table.num_rows else ["fact", "rows"])
    facts = dict(table.schema.metadata)
    if kind == "fact":
        header = json.loads(facts[b"streameval.header"])
        header = changed(header, draw.choice(places(header)[1:]), draw.choice(FACTS))
        return table.replace_schema_metadata(facts | {b"streameval.header": json.dumps(header).encode()})
    if kind == "rows":
        rows = draw.choice([[-1, 1], [2**62, 0], [3], [3, 2, 1], None, "xy", [0.5, 1], ["3", "2"], {}, [True, True]])
        return table.replace_schema_metadata(facts | {b"streameval.rows": json.dumps(rows).encode()})
    at = draw.randrange(table.num_columns)
    field, values = table.schema.field(at), table.column(at).to_pylist()
    order = draw.choices(range(len(values)), k=len(values))
    if kind == "order":
        return table.take(pa.array(draw.choice([order, order[1:], [*range(len(values)), 0]])))
    row = draw.randrange(len(values))
    values = [values[i] for i in order] if kind == "column" else values
    values[row] = values[row] if kind == "column" else forged_value(values[row], draw)
    return table.set_column(at, field, pa.array(values, field.type))


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.iterdir()))
def test_whatever_is_forged_is_refused_or_can_be_used(name: str) -> None:
    """No error but ours, when it is read, merged, stored again and finalized; no index out of bounds, no huge array."""
    table, draw = stored(name), random.Random(name)
    whole, refused = codec.load(batches(table)), list[str]()
    for _ in range(60):
        try:
            forged = forge(table, draw)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue  # the column cannot hold it
        try:
            state = codec.load(batches(forged))
            for shard in state.shards():
                list(state.parts(shard))
            codec.load(list(codec.dump(state.merge(state))[1]))
            state.merge(whole)
        except StreamevalError as error:
            refused.append(str(error))
    assert len(refused) > 5
    assert not any("\n" in message for message in refused)


@pytest.mark.parametrize("name", [b"-2:sa", b"-1:", b"0:", b":", b"2", b"9:sa", b"1_0:s12345678"])
def test_what_is_not_the_name_of_a_group_ends_with_an_error(name: bytes) -> None:
    """Whatever its length says."""
    refuses(ValueError, r"not the name of a group|invalid literal", parts_of, name)


@pytest.mark.parametrize(
    "name", [b"", b"2:sa", b"2:sa2:sb2:sc", b"2:sa2:zb", b"2:sa2:ix", b"2:sa2:d.", b"2:sa2:s\xff", b"2:sa9:s"]
)
def test_what_is_not_the_name_of_a_slice_is_refused_by_its_columns(name: bytes) -> None:
    """Too few parts, too many, and parts that are not values."""
    refuses(ValueError, r"is not the name of a slice by country, device$", By(("country", "device")).group, name)


def test_labels_of_two_types_are_merged() -> None:
    """Nights may hold the labels as integers and as texts; the order of both does not depend on the order of nights."""
    spec = LabelSpec("label", pos_label="spam")
    one, other = (codec.load(batches_of(spec, values)) for values in ([0, 1.5], ["ham"]))
    assert one.merge(other) == other.merge(one)
    assert one.merge(other).header()["values"] == [0, 1.5, "ham"]
    assert codec.load(list(codec.dump(one.merge(other))[1])) == one.merge(other)


def batches_of(spec: LabelSpec, values: list[Any]) -> list[pa.RecordBatch]:
    """A stored state with these label values, all negative."""
    schema, _ = codec.dump(spec.empty())
    header = json.loads(schema.metadata[b"streameval.header"]) | {"neg": len(values), "values": values}
    facts = {b"streameval.header": json.dumps(header), b"streameval.rows": json.dumps([len(values), 0])}
    return [pa.RecordBatch.from_pylist([], schema.with_metadata({**schema.metadata, **facts}))]
