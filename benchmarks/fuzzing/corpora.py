"""Public files and Delta tables: each is read as pyarrow reads it, or refused by name.

    git clone https://github.com/apache/parquet-testing
    git clone https://github.com/delta-io/delta-rs
    python benchmarks/fuzz.py --corpora parquet-testing delta-rs/crates/test/tests/data

Prints a line for every file and table: ``equal`` with its numbers of columns, and ``refused`` with the reason. The
status is 1 if one is ``wrong``, an error does not name it, or the process crashes. Of a nested column, the fields of
structs and the first elements of lists are read. Each flat column is also filtered by some of its values, which prunes.
"""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from streameval import scan
from streameval.errors import MissingInputError, StreamevalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MOST = 40  # columns of a file
_MISREAD = {"table_with_edge_timestamps"}  # tables of which the reference wraps the year 9999, in nanoseconds


def judge(path: str) -> str:
    """What becomes of a file or table."""
    try:
        schema, column = _reference(path)
        leaves, error = dict(list(_leaves(schema))[:_MOST]), "no flat columns"
    except Exception as failure:  # whatever pyarrow or deltalake raises
        leaves, error = {"": ("", _whole)}, f"{type(failure).__name__}: {failure}".splitlines()[0]
    equal, refused = 0, []
    for name, (top, read) in leaves.items():
        try:
            found = scan.plan(path, [name or _any_column(path)])
            values = _values(found, found.pieces)
        except StreamevalError as failure:
            if Path(path).name not in str(failure):
                return f"wrong: {name!r} is refused without its name: {failure}"
            refused.append(f"{name}: {failure}".replace(path, Path(path).name))
            continue
        try:
            if not name:
                raise ValueError(error)
            expected = [read(row) for row in _plain(column(top))]
        except Exception as failure:  # whatever pyarrow raises
            return f"wrong: {len(values):,} rows of {name!r} are read, but the reference cannot: {failure}"
        if sorted(map(repr, values)) != sorted(map(repr, expected)) and Path(path).name not in _MISREAD:
            return f"wrong: {name!r} has {values[:5]} of {len(values)} for {expected[:5]} of {len(expected)}"
        fault = _pruned(found, name)
        if fault:
            return f"wrong: {fault}"
        equal += 1
    if not equal:
        return f"refused: {refused[0] if refused else error}"
    return f"equal: {equal} columns" + (f", refused {len(refused)}: {refused[0]}" if refused else "")


def _reference(path: str) -> tuple[pa.Schema, Callable[[str], pa.ChunkedArray]]:
    """The schema, and what reads a column, of pyarrow or deltalake."""
    if not (Path(path) / "_delta_log").is_dir():
        if path.endswith(".encrypted"):
            raise ValueError("pyarrow aborts")
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
        return file.schema_arrow, lambda name: file.read([name]).column(name)
    from deltalake import DeltaTable, QueryBuilder

    table = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t"))
    return table.schema, table.column


def _whole(row: Any) -> Any:
    return row


def _plain(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values: numbers for times, which Python does not hold in all years, and bytes for UUIDs."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    with suppress(pa.ArrowException):  # of nested views, which have no times
        column = column.cast(_numbered(kind))
    return [_bytes_of(value) for value in column.to_pylist()]


def _numbered(kind: pa.DataType) -> pa.DataType:
    """A type with numbers for times, also below structs and lists."""
    if types.is_struct(kind):
        return pa.struct([inner.with_type(_numbered(inner.type)) for inner in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbered(kind.value_type)))
    return (pa.int32() if kind.bit_width == 32 else pa.int64()) if types.is_temporal(kind) else kind


def _bytes_of(value: Any) -> Any:
    """A value without UUIDs of Python."""
    if isinstance(value, dict):
        return {key: _bytes_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_bytes_of(one) for one in value]
    return value.bytes if isinstance(value, uuid.UUID) else value


def _any_column(path: str) -> str:
    """A column to ask for where the reference reads nothing."""
    try:
        names = pq.read_schema(path).names
    except Exception:  # whatever pyarrow raises
        names = []
    return names[0] if names else "label"


def _leaves(schema: Any) -> Iterator[tuple[str, tuple[str, Callable[[Any], Any]]]]:
    """The names of flat values, each with its top-level column and what reads it of a value of that column."""
    for field in schema:
        for path, read in _below(field.type, _whole):
            yield f"{field.name}{path}", (field.name, read)


def _below(kind: pa.DataType, read: Callable[[Any], Any]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """The paths to flat values below a type."""
    if types.is_struct(kind):
        for inner in kind:
            yield from (
                (f".{inner.name}{path}", one) for path, one in _below(inner.type, partial(_field, inner.name, read))
            )
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from ((f"[0]{path}", one) for path, one in _below(kind.value_type, partial(_first, read)))
    elif not types.is_nested(kind):
        yield "", read


def _field(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    outer = read(value)
    return None if outer is None else outer[name]


def _first(read: Callable[[Any], Any], value: Any) -> Any:
    return (read(value) or [None])[0]


def _values(found: scan.Scan, pieces: Any) -> list[Any]:
    columns = [batch.column(0) for piece in pieces for batch in scan.read(piece, found.schema)]
    return _plain(pa.chunked_array(columns, found.schema.field(0).type))


def _pruned(found: scan.Scan, name: str) -> str:
    """What is wrong with the rows of some filters; empty if nothing is."""
    whole = pa.concat_tables(
        [pa.Table.from_batches(list(scan.read(piece, found.schema)), found.schema) for piece in found.pieces]
    )
    x = pc.field(name)
    for value in list(dict.fromkeys(map(str, whole.column(0).unique().to_pylist())))[:3]:
        scalar = next(s for s in whole.column(0) if str(s.as_py()) == value)
        if not scalar.is_valid or types.is_nested(scalar.type):
            continue
        for where in (x == scalar, x < scalar, x.is_null()):
            try:
                test = scan.Where.of(where).bound(found.schema)
                pieces = scan.prune(found, test)[0].pieces
            except MissingInputError:
                pieces = ()
            except StreamevalError:  # a type that Arrow does not compare
                continue
            counts = [
                sum(int(test.kept(batch).sum()) for piece in several for batch in scan.read(piece, found.schema))
                for several in (pieces, found.pieces)
            ]
            if counts[0] != counts[1]:
                return f"{where} keeps {counts[0]} rows of {counts[1]}"
    return ""


def paths_in(folder: Path) -> Iterator[Path]:
    """The Delta tables in a folder, and the Parquet files that are in none."""
    tables = sorted({log.parent for log in folder.rglob("_delta_log")})
    yield from tables
    for path in sorted(folder.rglob("*.parquet*")):
        if not any(table in path.parents for table in tables):
            yield path


def judge_all(folders: Sequence[Path]) -> bool:
    """Print an outcome for every file and table of some folders; returns whether all are right."""
    counts: Counter[str] = Counter()
    for folder in folders:
        pool = ProcessPoolExecutor(1)
        for path in paths_in(folder):
            try:
                outcome = pool.submit(judge, str(path)).result()
            except BrokenProcessPool:
                pool, outcome = ProcessPoolExecutor(1), "crash: the process ended"
            except Exception as error:  # any unexpected error is a finding
                outcome = f"error: {type(error).__name__}: {error}"
            counts[outcome.partition(":")[0]] += 1
            print(f"{path.relative_to(folder)}: {outcome[:300]}")
        pool.shutdown()
    print(dict(counts))
    return not counts["wrong"] + counts["crash"] + counts["error"]
