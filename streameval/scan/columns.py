"""Columns: the types of the requested columns of an input, and errors that name what is missing.

A field of a struct is named with dots (``meta.cluster``), unless a top-level column has exactly that name. It is null
where the struct is null. A column that is not in the file may be a Hive key of its path. The partition values of a
dataset or Delta table count even if a file has a column of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import normalize

import pyarrow as pa
from pyarrow import types

from streameval.errors import MissingColumnError, SchemaError
from streameval.scan.derived import SlicingColumn, SourceColumn
from streameval.scan.pieces import nested_path
from streameval.scan.widen import plain
from streameval.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.scan.pieces import Constant, Piece


_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with large strings and binaries in place of views, which Arrow cannot filter, also in dictionaries.

    Examples
    --------
    >>> print(without_views(pa.schema({"c": pa.dictionary(pa.int8(), pa.string_view())})).field("c").type.value_type)
    large_string
    """
    return pa.schema([field.with_type(_without_view(field.type)) for field in schema])


def _without_view(kind: pa.DataType) -> pa.DataType:
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_view(kind.value_type), kind.ordered)
    return _VIEWS.get(kind, kind)


_SPARK_VECTOR = ["type", "size", "indices", "values"]  # fields of a vector of Spark ML, such as a probability
LISTED = 40  # largest number of column names in a message


@dataclass(frozen=True, slots=True)
class Holding:
    """The requested columns of one file, table or stream.

    Parameters
    ----------
    name : str
        Name of the input in messages.
    kinds : tuple of pyarrow.DataType
        The type of each requested column, in order.
    pieces : tuple of Piece
        The pieces to read.
    """

    name: str
    kinds: tuple[pa.DataType, ...]
    pieces: tuple[Piece, ...]


def find(
    schema: pa.Schema,
    columns: Sequence[str],
    name: str,
    keys: Mapping[str, Constant] | None = None,
    also: Sequence[str] | None = None,
) -> tuple[pa.DataType, ...]:
    """Types of the requested columns.

    Parameters
    ----------
    schema : pyarrow.Schema
        Schema of the file or table.
    columns : sequence of str
        The requested columns.
    name : str
        Name of the file or table in messages.
    keys : mapping of str to Constant, optional
        Columns whose values come from the path.
    also : sequence of str, optional
        All existing columns, for messages, if `schema` has only the requested ones.

    Returns
    -------
    tuple of pyarrow.DataType

    Raises
    ------
    MissingColumnError
        If a column does not exist.
    SchemaError
        If two columns have the requested name, a column is nested, or one exists that is computed for other inputs.

    Examples
    --------
    >>> find(pa.schema({"label": pa.int8(), "score": pa.float32()}), ["scroe"], "night.parquet")
    Traceback (most recent call last):
    ...
    streameval.errors.MissingColumnError: night.parquet: no column 'scroe'; did you mean 'score'? It has: label, score
    """
    keys = keys or {}
    computed = (each for column in columns if isinstance(column, SourceColumn) for each in column.computes)
    taken = next((column for column in computed if column in schema.names or column in keys), None)
    if taken is not None:
        raise SchemaError(_mixed(name, taken))
    absent = [column for column in columns if not (nested_path(schema, column) or column in keys)]
    if absent and isinstance(absent[0], SlicingColumn) and absent[0].looks_computed:  # not if the first input lacks it
        raise MissingColumnError(_mixed(name, absent[0]), absent[0])
    if absent:
        raise _missing(
            schema, absent[0], name, list(dict.fromkeys([*map(str, schema.names if also is None else also), *keys]))
        )
    return tuple(_kind(schema, column, name, keys) for column in columns)


def _mixed(name: str, column: str) -> str:
    """The message for the first input that has a column that is computed for others, or lacks one that they have."""
    return f"{name}: column {str(column)!r} is in some files only, and would be computed for the others; rename it"


def is_constant(schema: pa.Schema, column: str, keys: Mapping[str, Constant]) -> bool:
    """Whether the values of a column are those of `keys`, not of the file.

    Examples
    --------
    >>> from streameval.scan.pieces import Constant
    >>> day = Constant(7, pa.int32())
    >>> is_constant(pa.schema({"day": pa.int64()}), "day", {"day": day}), is_constant(pa.schema({}), "day", {})
    (True, False)
    """
    return column in keys and (not keys[column].fallback or not nested_path(schema, column))


def _kind(schema: pa.Schema, column: str, name: str, keys: Mapping[str, Constant]) -> pa.DataType:
    """The type of one column; raises `SchemaError` if it cannot be used."""
    if column in keys and keys[column].refused:
        raise SchemaError(keys[column].refused)
    if is_constant(schema, column, keys):
        return keys[column].kind
    if len(schema.get_all_field_indices(column)) > 1:
        raise SchemaError(
            f"{name}: {len(schema.get_all_field_indices(column))} columns are named {column!r}; rename them"
        )
    path = nested_path(schema, column)
    kind = schema.field(path[0]).type
    for field in path[1:]:
        kind = kind.field(field).type
    if types.is_nested(plain(kind)):
        raise SchemaError(f"{name}: column {column!r} is nested ({_short(kind)}); {_flat_remedy(column, kind)}")
    return kind


def _flat_remedy(column: str, kind: pa.DataType) -> str:
    """How to have a value of a nested column, for a message."""
    if types.is_struct(kind) and [field.name for field in kind] == _SPARK_VECTOR:
        return "in Spark, write an element of it as a separate column: vector_to_array(…)[1]"
    leaf = _leaf(kind)
    if leaf:
        return f"name one of its fields, such as {column}.{leaf}"
    return "write the value you want as a separate column"


def _leaf(kind: pa.DataType) -> str:
    """The path to the first field of a struct that is flat and can be named; empty if there is none."""
    for field in kind if types.is_struct(kind) else ():
        if "." not in field.name and len(kind.get_all_field_indices(field.name)) == 1:
            below = _leaf(field.type)
            if below or not types.is_nested(plain(field.type)):
                return f"{field.name}.{below}" if below else field.name
    return ""


def _missing(schema: pa.Schema, column: str, name: str, names: Sequence[str]) -> MissingColumnError:
    """The error for a column that does not exist, with the most similar name and a list of names."""
    parent = column.split(".")[0]
    if parent != column and parent in schema.names and types.is_nested(schema.field(parent).type):
        kind = schema.field(parent).type
        msg = f"{name}: no field {column!r}; {parent!r} is {_short(kind)}; {_flat_remedy(parent, kind)}"
        return MissingColumnError(msg, column, parent)
    near = nearest(column, names, 0.5) or ""
    alike = normalize("NFKC", near) == normalize("NFKC", column)  # and look alike
    hint = f"did you mean {ascii(near) if alike else repr(near)}? It" if near else "it"
    more = f", … ({len(names)} in all)" if len(names) > LISTED else ""
    msg = f"{name}: no column {column!r}; {hint} has: {', '.join(names[:LISTED])}{more}"
    return MissingColumnError(msg, column, near)


def _short(kind: pa.DataType) -> str:
    """The name of a type, truncated to 60 characters."""
    text = str(kind)
    return text if len(text) <= 60 else f"{text[:57]}..."
