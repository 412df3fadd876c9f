"""Where: filters of rows, given as SQL text or as an Arrow expression, and the test of a batch.

- ``sql`` parses a condition in SQL and translates it to an Arrow expression;
- ``comparisons`` converts values of a condition to the type of the column that they are compared with;
- ``expressions`` finds the columns of an Arrow expression that a user passes;
- ``pruning`` skips pieces that cannot contain such a row, by their path and the statistics of their row groups.

Nulls are treated as in SQL: a comparison with a null is neither true nor false, and only rows for which the condition
is true are kept. A NaN is neither less than, greater than nor equal to any number, as in IEEE 754 and in Arrow.

*Trees.* Arrow does not expose the tree of an expression, but pickles it as a record batch: the metadata of its schema
spell the tree in prefix order, and its columns hold the literals and options. The metadata repeat keys, so they are
read through Arrow's C data interface. An expression whose pickle is not understood has no tree, and then prunes
nothing.
"""

from __future__ import annotations

import ctypes
import io
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from pyarrow import types

from streameval.errors import OptionError, SchemaError
from streameval.scan.faults import reason
from streameval.scan.parquet.pages import decodable_rows
from streameval.scan.widen import occurring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.typing import Array


@dataclass(frozen=True)
class Node:
    """A part of an expression.

    Attributes
    ----------
    call : name of a function; ``field``, with the name of the column as its value; or ``literal``, with its scalar
    arguments : the arguments of a function
    value : see `call`; the scalar with the options of a function, or None
    columns : the columns that it reads, in the order of their first occurrence
    expression : makes an expression of it alone
    """

    call: str
    arguments: tuple[Node, ...]
    value: Any
    columns: tuple[str, ...]
    expression: Callable[[], pc.Expression]


def _tree(load: Any, batch: pa.RecordBatch, entries: Sequence[tuple[bytes, bytes]]) -> Node:
    """The tree of a pickled expression: how to load it, its record batch, and the entries of the metadata of that.

    There is no recursion, since a chain of conditions may be longer than Python's stack.
    """
    opened: list[tuple[int, str, list[Node]]] = [(0, "", [])]
    options = None
    for at, (key, text) in enumerate(entries):
        expression = partial(_expression, load, batch, entries[at : at + 1])
        if key == b"call":
            opened.append((at, text.decode(), []))
        elif key == b"options":
            options = batch.column(int(text))[0]
        elif key == b"end":
            start, call, arguments = opened.pop()
            columns = tuple(dict.fromkeys(column for argument in arguments for column in argument.columns))
            expression = partial(_expression, load, batch, entries[start : at + 1])
            opened[-1][2].append(Node(call, _flat(call, arguments), options, columns, expression))
            options = None
        elif key == b"literal":
            opened[-1][2].append(Node("literal", (), batch.column(int(text))[0], (), expression))
        elif key == b"field_ref":
            name = text.decode()
            opened[-1][2].append(Node("field", (), name, (name,), expression))
        else:
            raise ValueError(f"an entry {key!r}")
    (root,) = opened[0][2]
    return root


def _expression(load: Any, batch: pa.RecordBatch, entries: Sequence[tuple[bytes, bytes]]) -> pc.Expression:
    """An expression of some entries of the metadata of a pickled one."""
    batch = batch.replace_schema_metadata(pa.KeyValueMetadata(entries))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return load(pa.py_buffer(sink.getvalue()))


def _flat(call: str, arguments: Sequence[Node]) -> tuple[Node, ...]:
    """The arguments of a function; those of a chain of ANDs or ORs are the conditions in it."""
    if call not in ("and_kleene", "or_kleene"):
        return tuple(arguments)
    return tuple(
        part for argument in arguments for part in (argument.arguments if argument.call == call else (argument,))
    )


def expression_tree(expression: pc.Expression) -> Node | None:
    """The tree of an expression; None if it cannot be determined, as for one that refers to fields by position.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> node = expression_tree(pc.field("n") > 5)
    >>> node.call, [argument.value for argument in node.arguments]
    ('greater', ['n', <pyarrow.Int64Scalar: 5>])
    """
    try:
        load, (buffer,) = expression.__reduce__()
        batch = pa.ipc.open_file(buffer).get_batch(0)
        return _tree(load, batch, _metadata(batch.schema))
    except (pa.ArrowException, ValueError, TypeError, IndexError):
        return None


def _metadata(schema: pa.Schema) -> list[tuple[bytes, bytes]]:
    """All entries of the metadata of a schema; those of equal keys as well."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    start = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2]  # format, name, metadata
    count, at = ctypes.c_int32.from_address(start).value if start else 0, (start or 0) + 4
    texts = list[bytes]()
    for _ in range(2 * count):
        size = ctypes.c_int32.from_address(at).value
        texts.append(ctypes.string_at(at + 4, size))
        at += 4 + size
    return list(pairwise(texts))[::2]


def expression_columns(expression: pc.Expression) -> tuple[str, ...]:
    """The columns that an expression reads.

    Raises
    ------
    OptionError
        If they cannot be found.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> expression_columns((pc.hour(pc.field("sent_at")) > 3) & (pc.field("country") == "DE"))
    ('sent_at', 'country')
    """
    tree = expression_tree(expression)
    if tree is None:
        raise OptionError(f"where: the columns of {expression} cannot be determined; write it as SQL text")
    return tree.columns


def evaluate_expression(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """An expression for each row of a table."""
    from pyarrow import acero

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["kept"]), inputs=[source])
    return project.to_table(use_threads=False).column("kept")


@dataclass(frozen=True)
class Where:
    """A filter of rows, before the types of its columns are known.

    Attributes
    ----------
    text : the filter for messages
    columns : the columns that it reads

    Examples
    --------
    >>> where = Where.of("country = 'DE' AND n_chars > 5")
    >>> where.columns
    ('country', 'n_chars')
    >>> schema = pa.schema({"country": "string", "n_chars": "int32"})
    >>> batch = pa.record_batch({"country": ["DE", "DE", None], "n_chars": [7, 5, 9]}, schema)
    >>> where.bound(schema).kept(batch)
    array([ True, False, False])
    """

    text: str
    columns: tuple[str, ...]
    _condition: pc.Expression | Callable[[pa.Schema], pc.Expression] = field(repr=False, compare=False)
    _notes: Callable[[pa.Schema], list[str]] = field(default=lambda _: [], repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        given = self._condition if isinstance(self._condition, pc.Expression) else self.text
        return Where.of, (given,)

    @classmethod
    def of(cls, given: str | pc.Expression) -> Where:
        """The filter given by an SQL text or a `pyarrow.compute.Expression`.

        Raises
        ------
        OptionError
            If the text cannot be parsed or uses unsupported SQL, or the columns of the expression cannot be found.
        """
        if isinstance(given, pc.Expression):
            return cls(str(given), expression_columns(given), given)
        from streameval.scan.sql import parse_condition  # here, because sqlglot is slow to import

        return cls(given, *parse_condition(given))

    def bound(self, schema: pa.Schema, name: str = "") -> Test:
        """The test for rows with a schema, in which the types of the columns are known.

        Raises
        ------
        OptionError
            If a column is compared with a value of another kind, or the filter cannot be evaluated; `name` is the file
            in the message.
        """
        schema = pa.schema([field.with_type(_plain(field.type)) for field in map(schema.field, self.columns)])
        of_file = f"{name}: " if name else ""
        try:
            condition = self._condition
            expression = condition if isinstance(condition, pc.Expression) else condition(schema)
            meets, notes = evaluate_expression(expression, schema.empty_table()), self._notes(schema)
            if not types.is_boolean(meets.type):
                raise OptionError(f"where: {self.text} has type {meets.type}; a filter is true or false")
        except OptionError as error:
            raise OptionError(f"{of_file}{error}") from None
        except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
            what = f"{of_file}where: {self.text} cannot be evaluated: {reason(error)}"
            raise OptionError(f"{what}; check the types of its columns") from None
        return Test(self.text, expression, schema, tuple(notes))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in which a column is compared: without dictionary, and one in which Arrow looks values up."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.float32() if types.is_float16(kind) else kind


@dataclass(frozen=True)
class Test:
    """A filter of rows, bound to the types of its columns.

    Attributes
    ----------
    text : the filter for messages
    expression : Arrow expression that is true for rows to keep
    schema : the columns that it reads
    notes : what numbers are compared with that are no values of the type of their column
    """

    __test__ = False  # for pytest, which collects classes of this name

    text: str
    expression: pc.Expression = field(compare=False, repr=False)
    schema: pa.Schema
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.text} ({'; '.join(self.notes)})" if self.notes else self.text

    def kept(self, batch: pa.RecordBatch, name: str = "input") -> Array:
        """Which rows of a batch meet the condition, as a bool array of shape (n,).

        Raises
        ------
        SchemaError
            If the filter cannot be evaluated on the values; `name` is the file in the message.
        """
        columns = [batch.column(column) for column in self.schema.names]
        rows = decodable_rows(columns) if len(columns) > 1 else max(1, batch.num_rows)
        try:
            parts = [[column.slice(start, rows) for column in columns] for start in range(0, batch.num_rows, rows)]
            return np.concatenate([self._of_rows(part) for part in parts or [columns]])
        except pa.ArrowException as error:
            raise SchemaError(f"{name}: where: {self.text} cannot be evaluated: {reason(error)}") from None

    def _of_rows(self, columns: Sequence[pa.Array]) -> Array:
        """Which rows meet the condition."""
        tested, codes = _distinct(columns)
        table = pa.table(list(map(pa.Array.cast, tested, self.schema.types)), schema=self.schema)
        meets: Array = pc.fill_null(evaluate_expression(self.expression, table), False).to_numpy()
        return meets if codes is None else meets[codes]


def _distinct(columns: Sequence[pa.Array]) -> tuple[Sequence[pa.Array], Array | None]:
    """The rows to test, and for each row of a batch the index of the one with its values; None if they are the rows.

    Of a single dictionary column, each distinct value, and null, is tested once.
    """
    if len(columns) != 1 or not types.is_dictionary(columns[0].type):
        return columns, None
    array = occurring(columns[0])
    values = pa.concat_arrays([array.dictionary, pa.nulls(1, array.dictionary.type)])
    return [values], pc.fill_null(array.indices.cast(pa.int64()), len(array.dictionary)).to_numpy()
