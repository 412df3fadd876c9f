"""Conditions: which rows to keep, given as SQL text or as an Arrow expression, and the test of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streameval.errors import OptionError, SchemaError
from streameval.scan.messages import reason
from streameval.scan.parquet.pages import decodable_rows
from streameval.scan.where.expressions import expression_columns
from streameval.scan.where.sql import column_names, parsed
from streameval.scan.where.translation import decides_by_nan, translated
from streameval.scan.widen import occurring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

__all__ = ["Test", "Where"]


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
            msg = f"{name}: {error}" if name else str(error)
            raise OptionError(msg) from None

    def _bound(self, schema: pa.Schema) -> Test:
        fields = map(schema.field, self.columns)
        schema = pa.schema([field.with_type(_plain(field.type)) for field in fields])
        if isinstance(self._tree, pc.Expression):
            blind = any(types.is_floating(kind) for kind in schema.types)
            test = Test(self.text, self._tree, schema, not blind)
        else:
            expression = translated(self._tree, schema)
            test = Test(self.text, expression, schema, not decides_by_nan(self._tree, schema))
        test.check()
        return test


def _plain(kind: pa.DataType) -> pa.DataType:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return pa.float32() if types.is_float16(kind) else kind


@dataclass(frozen=True)
class Test:
    """A filter of rows, bound to the types of its columns.

    Attributes
    ----------
    text : the filter for messages
    expression : Arrow expression that is true for rows to keep
    schema : the columns that it reads
    prunes : whether statistics of row groups can prove that no row meets it; not if a NaN may, as they ignore NaN
    """

    __test__ = False  # for pytest, which collects classes of this name

    text: str
    expression: Any = field(compare=False, repr=False)
    schema: pa.Schema
    prunes: bool

    def check(self) -> None:
        """Raise `OptionError` if Arrow cannot evaluate the expression, or its type is not boolean."""
        try:
            found = self._evaluated(self.schema.empty_table())
        except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
            msg = f"where: {self.text} cannot be evaluated: {reason(error)}; check the types of its columns"
            raise OptionError(msg) from None
        if not types.is_boolean(found.type):
            msg = f"where: {self.text} has type {found.type}; a filter is true or false"
            raise OptionError(msg)

    def _evaluated(self, table: pa.Table) -> pa.ChunkedArray:
        from pyarrow import acero

        made = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        project = acero.Declaration("project", acero.ProjectNodeOptions([self.expression], ["kept"]), inputs=[made])
        return project.to_table(use_threads=False).column("kept")

    def kept(self, batch: pa.RecordBatch, name: str = "input") -> Array:
        """Which rows of a batch meet the condition, as a bool array of shape (n,).

        Raises
        ------
        SchemaError
            If the filter cannot be evaluated on the values; `name` is the file in the message.
        """
        columns = [batch.column(column) for column in self.schema.names]
        try:
            if len(columns) == 1 and types.is_dictionary(columns[0].type):
                return self._of_codes(occurring(columns[0]))
            rows = decodable_rows(columns)
            parts = ([column.slice(start, rows) for column in columns] for start in range(0, batch.num_rows, rows))
            return np.concatenate([np.zeros(0, np.bool_), *map(self._of_plain, parts)])
        except pa.ArrowException as error:
            msg = f"{name}: where: {self.text} cannot be evaluated: {reason(error)}"
            raise SchemaError(msg) from None

    def _of_codes(self, array: pa.DictionaryArray) -> Array:
        """Which rows of a dictionary column meet the condition; each distinct value, and null, is tested once."""
        values = pa.concat_arrays([array.dictionary, pa.nulls(1, array.dictionary.type)])
        codes = pc.fill_null(array.indices.cast(pa.int64()), len(array.dictionary)).to_numpy()
        kept: Array = self._of_plain([values])[codes]
        return kept

    def _of_plain(self, columns: Sequence[pa.Array]) -> Array:
        """Which rows of some columns meet the condition; they are cast to the types of the schema."""
        columns = [column.cast(kind) for column, kind in zip(columns, self.schema.types, strict=True)]
        found = self._evaluated(pa.table(columns, schema=self.schema))
        kept: Array = pc.fill_null(found, False).to_numpy()
        return kept
