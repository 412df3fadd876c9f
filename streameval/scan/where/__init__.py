"""Where: filters of rows, given as SQL text or as an Arrow expression, and the test of a batch.

- ``sql`` parses and checks a condition in SQL; nothing is ever evaluated as code;
- ``comparisons`` converts values of a condition to the type of the column that they are compared with;
- ``translation`` translates the condition to an Arrow expression;
- ``expressions`` finds the columns of an Arrow expression that a user passes;
- ``pruning`` skips pieces that cannot contain such a row, by their path and the statistics of their row groups.

Nulls are treated as in SQL: a comparison with a null is neither true nor false, and only rows for which the condition
is true are kept. A NaN is neither less than, greater than nor equal to any number, as in IEEE 754 and in Arrow.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streameval.errors import OptionError, SchemaError
from streameval.scan.faults import reason
from streameval.scan.parquet.pages import decodable_rows
from streameval.scan.where.expressions import evaluated, expression_columns
from streameval.scan.widen import occurring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array


SMALL_ROWS = 1 << 14  # rows below which batches are tested together


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
    _tree: Any = field(repr=False, compare=False)

    @classmethod
    def of(cls, given: Any) -> Where:
        """The filter given by an SQL text or a `pyarrow.compute.Expression`.

        Raises
        ------
        OptionError
            If the text cannot be parsed or uses unsupported SQL, or the columns of the expression cannot be found.
        """
        if isinstance(given, pc.Expression):
            return cls(str(given), expression_columns(given), given)
        from streameval.scan.where.sql import column_names, parsed  # here, because sqlglot is slow to import

        tree = parsed(given)
        return cls(given, column_names(tree), tree)

    def bound(self, schema: pa.Schema, name: str = "") -> Test:
        """The test for rows with a schema, in which the types of the columns are known.

        Raises
        ------
        OptionError
            If a column is compared with a value of another kind, or the filter cannot be evaluated; `name` is the file
            in the message.
        """
        try:
            return self._bound(schema)
        except OptionError as error:
            raise OptionError(f"{name}: {error}" if name else str(error)) from None

    def _bound(self, schema: pa.Schema) -> Test:
        fields = map(schema.field, self.columns)
        schema = pa.schema([field.with_type(_plain(field.type)) for field in fields])
        expression = self._tree
        if not isinstance(expression, pc.Expression):
            from streameval.scan.where.translation import translated

            expression = translated(expression, schema)
        test = Test(self.text, expression, schema)
        test.check()
        return test


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
    """

    __test__ = False  # for pytest, which collects classes of this name

    text: str
    expression: Any = field(compare=False, repr=False)
    schema: pa.Schema

    def check(self) -> None:
        """Raise `OptionError` if Arrow cannot evaluate the expression, or its type is not boolean."""
        try:
            found = evaluated(self.expression, self.schema.empty_table())
        except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
            raise OptionError(
                f"where: {self.text} cannot be evaluated: {reason(error)}; check the types of its columns"
            ) from None
        if not types.is_boolean(found.type):
            raise OptionError(f"where: {self.text} has type {found.type}; a filter is true or false")

    def kept(self, batch: pa.RecordBatch, name: str = "input") -> Array:
        """Which rows of a batch meet the condition, as a bool array of shape (n,).

        Raises
        ------
        SchemaError
            If the filter cannot be evaluated on the values; `name` is the file in the message.
        """
        columns = [batch.column(column) for column in self.schema.names]
        rows = decodable_rows(columns) if len(columns) > 1 else batch.num_rows
        try:
            if rows >= batch.num_rows:
                return self._of_rows([_Rows.of(columns)])[0]
            parts = ([column.slice(start, rows) for column in columns] for start in range(0, batch.num_rows, rows))
            return np.concatenate([self._of_rows([_Rows.of(part)])[0] for part in parts])
        except pa.ArrowException as error:
            raise SchemaError(f"{name}: where: {self.text} cannot be evaluated: {reason(error)}") from None

    def kept_of_each(self, batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> list[Array]:
        """`kept` of several small batches, evaluated together: a long condition takes milliseconds for a single row."""
        several = [[batch.column(column) for column in self.schema.names] for batch in batches]
        if len(several) > 1 and all(decodable_rows(columns) >= SMALL_ROWS for columns in several):
            with suppress(pa.ArrowException):  # which of them it is, is found below
                return self._of_rows([_Rows.of(columns) for columns in several])
        return [self.kept(*pair) for pair in zip(batches, names, strict=True)]

    def _of_rows(self, several: Sequence[_Rows]) -> list[Array]:
        """Which rows of each of some batches meet the condition."""
        tables = [rows.table(self.schema) for rows in several]
        found = evaluated(self.expression, pa.concat_tables(tables).combine_chunks())
        kept: Array = pc.fill_null(found, False).to_numpy()
        ends = np.cumsum([table.num_rows for table in tables])
        return [rows.spread(part) for rows, part in zip(several, np.split(kept, ends[:-1]), strict=True)]


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch to test; of a single dictionary column, each distinct value, and null, is tested once.

    Attributes
    ----------
    columns : the columns of the filter, or the distinct values
    codes : for each row, the index of its value; None if the rows themselves are tested
    """

    columns: Sequence[pa.Array]
    codes: Array | None = None

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> _Rows:
        if len(columns) != 1 or not types.is_dictionary(columns[0].type):
            return cls(columns)
        array = occurring(columns[0])
        values = pa.concat_arrays([array.dictionary, pa.nulls(1, array.dictionary.type)])
        return cls([values], pc.fill_null(array.indices.cast(pa.int64()), len(array.dictionary)).to_numpy())

    def table(self, schema: pa.Schema) -> pa.Table:
        """The rows to test, cast to the types of the filter."""
        columns = [column.cast(kind) for column, kind in zip(self.columns, schema.types, strict=True)]
        return pa.table(columns, schema=schema)

    def spread(self, kept: Array) -> Array:
        """The result for every row from that for the rows to test."""
        return kept if self.codes is None else kept[self.codes]
