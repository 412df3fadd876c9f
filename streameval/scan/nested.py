"""Nested columns: fields of structs and elements of lists, named by a path such as ``probability.values[1]``.

A field of a struct follows a dot, an element of a list its index in brackets, counted from 0. A top-level column that
has exactly the name is read instead. A value is null where a struct or a list on its way is null, or where the list is
too short. A vector of Spark ML is a struct of ``type``, ``size``, ``indices`` and ``values``: an element of its
``values`` is the element of the vector, which is 0 where a sparse vector does not store it.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streameval.scan.widen import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.typing import Array

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")
_SPARK_VECTOR = ["type", "size", "indices", "values"]


def nested_path(schema: pa.Schema, column: str) -> tuple[str | int, ...]:
    """The path from a top-level column to a value: names of fields, and indices of elements; empty if there is none.

    >>> import pyarrow as pa
    >>> schema = pa.schema({"meta": pa.struct({"cluster": pa.int64()}), "scores": pa.list_(pa.float32())})
    >>> nested_path(schema, "meta.cluster"), nested_path(schema, "scores[1]"), nested_path(schema, "meta[0]")
    (('meta', 'cluster'), ('scores', 1), ())
    """
    if column in schema.names:
        return (column,)
    listed = column.partition("[")[0]
    top = listed if listed in schema.names else re.split(r"[.\[]", column, maxsplit=1)[0]
    if len(schema.get_all_field_indices(top)) != 1:
        return ()
    path, kind, at = [top], plain(schema.field(top).type), len(top)
    while at < len(column):
        step = _STEP.match(column, at)
        inner = step and _inner(kind, step)
        if not (step and inner):
            return ()
        path.append(step[1] or int(step[2]))
        kind, at = plain(inner), step.end()
    return tuple(path)


def _inner(kind: pa.DataType, step: re.Match[str]) -> pa.DataType | None:
    """The type of a field of a struct, or of an element of a list; None if there is no such field or element."""
    if step[1]:
        unique = types.is_struct(kind) and len(kind.get_all_field_indices(step[1])) == 1
        return kind.field(step[1]).type if unique else None
    if types.is_fixed_size_list(kind):
        return kind.value_type if int(step[2]) < kind.list_size else None
    return kind.value_type if types.is_list(kind) or types.is_large_list(kind) else None


def type_at(schema: pa.Schema, path: tuple[str | int, ...]) -> pa.DataType:
    """The type at the end of a path."""
    kind = schema.field(path[0]).type
    for step in path[1:]:
        kind = plain(kind).field(step).type if isinstance(step, str) else plain(kind).value_type
    return kind


def fields_below(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """The paths and types of fields of structs, at any depth.

    >>> list(fields_below(pa.schema({"id": pa.int64(), "meta": pa.struct({"length": pa.int32()})})))
    [('meta.length', DataType(int32))]
    """
    for field in fields:
        if above:
            yield f"{above}{field.name}", field.type
        if types.is_struct(field.type):
            yield from fields_below(field.type, f"{above}{field.name}.")


class TableNames(dict[int | str, str]):
    """The paths that a table has for its columns and fields now, by their ids in a file or by their paths in it."""

    def of(self, schema: pa.Schema) -> pa.Schema:
        """The schema of a file with the table's names, without columns that the table no longer has."""
        return pa.schema([field.with_type(kind).with_name(name) for name, field, kind in self._fields(schema)])

    def identity(self, column: str) -> list[str]:
        """What identifies a path, and all above and below it, in the files; the same if the table renames others."""
        near = tuple(f"{name}." for name in stored_names([column]))
        above = {path for name in near for path in accumulate(name.split("."), "{}.{}".format)}
        return sorted(str(key) for key, path in self.items() if path in above or path.startswith(near))

    def path_in(self, schema: pa.Schema, column: str) -> str:
        """The path in the file for a path in the table; the same path if the file lacks it."""
        fields, path, above = list(self._fields(schema)), "", ""
        for step in nested_path(self.of(schema), column):
            if isinstance(step, int):
                path += f"[{step}]"
                continue
            stored = next(field for name, field, _ in fields if name == step)
            path, above = f"{path}{'.' if path else ''}{stored.name}", f"{above}{step}."
            fields = list(self._fields(stored.type, f"{path}.", above)) if types.is_struct(stored.type) else []
        return path or column

    def _fields(
        self, fields: Iterable[pa.Field], path: str = "", above: str = ""
    ) -> Iterator[tuple[str, pa.Field, pa.DataType]]:
        """The table's name, the field in the file and the renamed type of what the table has below two paths.

        Where a table numbers its columns, another number is another column, even if it has the name of one.
        """
        numbered = any(isinstance(key, int) for key in self)
        for field in fields:
            number = (field.metadata or {}).get(b"PARQUET:field_id") if numbered else None
            name = self.get(f"{path}{field.name}" if number is None else int(number))
            kind = field.type
            if name is not None and not _holds_structs(kind):  # whose fields may have other names as well
                if types.is_struct(kind):
                    below = self._fields(kind, f"{path}{field.name}.", f"{name}.")
                    kind = pa.struct([(inner, inner_kind) for inner, _, inner_kind in below])
                yield name.removeprefix(above), field, kind


def _holds_structs(kind: pa.DataType) -> bool:
    """Whether a type is a list, or map, of structs or further lists."""
    return (
        types.is_nested(kind)
        and not types.is_struct(kind)
        and any(types.is_nested(kind.field(i).type) for i in range(kind.num_fields))
    )


def stored_names(columns: Iterable[str]) -> list[str]:
    """The names to read for some columns: for an element of a list the list, for one of a vector the struct as well.

    >>> stored_names(["label", "probability.values[1]"])
    ['label', 'probability.values[1]', 'probability.values', 'probability']
    """
    names = dict[str, None]()
    for column in columns:
        listed, bracket, _ = column.partition("[")
        names |= dict.fromkeys((column, listed, listed.removesuffix(".values")) if bracket else (column,))
    return list(names)


def column_of(data: pa.Table | pa.RecordBatch, column: str) -> pa.ChunkedArray | pa.Array:
    """A column of a table or record batch, or what a path leads to.

    >>> data = pa.table({"scores": [[0.5, 0.25], [1.0], None]})
    >>> column_of(data, "scores[1]").to_pylist()
    [0.25, None, None]
    """
    top, *below = nested_path(data.schema, column) or (column,)
    values = data.column(top)
    if not below:
        return values
    if isinstance(values, pa.ChunkedArray):
        kind = type_at(data.schema, (top, *below))
        return pa.chunked_array([_descend(chunk, below) for chunk in values.chunks], kind)
    return _descend(values, below)


def _descend(array: pa.Array, steps: list[str | int]) -> pa.Array:
    """What the steps of a path lead to."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if types.is_dictionary(array.type):
        array = array.dictionary.take(array.indices)
    elif types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if _is_vector(array.type) and steps[0] == "values" and len(steps) > 1:
        return _vector_element(array, int(steps[1]))
    step, *below = steps
    inner = pc.struct_field(array, [step]) if isinstance(step, str) else _element(array, step)
    return _descend(inner, below) if below else inner


def _starts(array: pa.Array) -> Array:
    """Where the elements of each list begin in all values."""
    if types.is_fixed_size_list(array.type):
        starts: Array = (array.offset + np.arange(len(array))) * array.type.list_size
    else:
        starts = array.offsets.to_numpy()[:-1]
    return starts


def _element(array: pa.Array, index: int) -> pa.Array:
    """The element of each list; null where the list is null or too short."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    return array.values.take(pa.array(_starts(array) + index, pa.int64(), mask=lengths <= index))


def _is_vector(kind: pa.DataType) -> bool:
    """Whether a type is that of Spark ML's vectors."""
    return types.is_struct(kind) and [inner.name for inner in kind] == _SPARK_VECTOR


def _vector_element(vector: pa.Array, index: int) -> pa.Array:
    """The element of each vector; null where the vector is null or too short."""
    kind, size, indices, values = (pc.struct_field(vector, [name]) for name in _SPARK_VECTOR)
    dense = _element(values, index)
    counts = pc.fill_null(pc.list_value_length(indices), 0).to_numpy()
    places = np.flatnonzero(indices.flatten().to_numpy() == index)  # of the lists that are not null
    rows = np.repeat(np.arange(counts.size), counts)[places]
    at = np.full(len(vector), -1, np.int64)
    at[rows] = _starts(values)[rows] + places - (np.cumsum(counts) - counts)[rows]
    stored = values.values.take(pa.array(at, mask=at < 0))
    sparse = pc.if_else(pc.less(index, size), pc.fill_null(stored, 0), None)
    return pc.if_else(pc.equal(kind, 0), sparse, dense)


def flat_remedy(column: str, kind: pa.DataType) -> str:
    """How to name a value in a nested column, for a message."""
    leaf = "values[1]" if _is_vector(plain(kind)) else min(_leaves(kind), key=lambda leaf: "[" in leaf, default="")
    if leaf.startswith("["):
        return f"name one of its elements, such as {column}{leaf}"
    return f"name one of its fields, such as {column}.{leaf}" if leaf else "write the value as a separate column"


def _leaves(kind: pa.DataType) -> Iterator[str]:
    """The paths to flat values that can be named, of lists to the first element."""
    kind = plain(kind)
    if types.is_list(kind) or types.is_large_list(kind) or (types.is_fixed_size_list(kind) and kind.list_size):
        below = [("[0]", kind.value_type)]
    else:
        fields = kind if types.is_struct(kind) else ()
        names = [inner.name for inner in fields]
        named = (inner for inner in fields if _STEP.fullmatch(f".{inner.name}") and names.count(inner.name) == 1)
        below = [(inner.name, inner.type) for inner in named]
    for name, inner in below:
        if not types.is_nested(plain(inner)):
            yield name
        else:
            yield from (f"{name}{'' if leaf.startswith('[') else '.'}{leaf}" for leaf in _leaves(inner))
