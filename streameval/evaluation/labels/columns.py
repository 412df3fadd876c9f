"""Columns that arrive late: the labels, and classes, units, strata and probabilities that the data lack.

Each has statements of its own, read from the tables that have it: a table without a column says nothing about it. Rows
without a class are in no table of classes and clusters, rows without a unit are each a unit, and a label needs the
probability with which it was drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import MissingColumnError, OptionError, SchemaError
from streameval.evaluation.labels.divided import read_labels
from streameval.states.keyed.ids import id_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.evaluation.labels.statements import LateSource, Statements
    from streameval.scan import Scan

_LATE = {b"streameval.late": b""}  # metadata of fields that the data lack


def is_late(field: pa.Field) -> bool:
    """Whether a field of the schema of `with_late_fields` is one that the data lack."""
    return bool((field.metadata or {}).items() >= _LATE.items())


def late_field(field: pa.Field) -> pa.Field:
    """The field of a column that the data lack."""
    return field.with_metadata((field.metadata or {}) | _LATE)


def with_late_fields(source: LateSource | None, scanned: Scan, engine: Engine) -> Scan:
    """A scan of the data with the fields that arrive late, if classes or units do; raises as `_by_column`."""
    schema, name = scanned.schema, scanned.pieces[0].name
    sources = [] if source is None else _by_column(source, schema, engine)
    for one in sources if sources != [source] else ():
        if one.column in schema.names:
            continue
        tables = one.find_tables(schema, name, engine)
        field = tables.schema.field(one.column)
        try:
            id_type(field.type if one.has_ids else pa.null(), one.column)
        except SchemaError as error:
            raise SchemaError(f"{tables.tasks[0][0].name}: {error}") from None
        schema = schema.append(late_field(field))
    return replace(scanned, schema=schema)


def read_columns(source: LateSource, scanned: Scan, engine: Engine) -> Statements:
    """Read and resolve statements about every column that arrives late; raises as `read_labels` and `_by_column`."""
    first, *others = (read_labels(one, scanned, engine) for one in _by_column(source, scanned.schema, engine))
    return replace(first, late=replace(first.late, others=tuple(one.late for one in others)))


def _by_column(source: LateSource, schema: pa.Schema, engine: Engine) -> list[LateSource]:
    """The source of each column that arrives late, with the tables that have it: that of the labels first, if any.

    Raises
    ------
    MissingColumnError
        If neither the data, which have `schema`, nor a table has a column that is needed.
    OptionError
        If an option or a table serves a single column.
    """
    lacking = [replace(source, column=name, wide=True) for name in source.further if name not in schema.names]
    if not lacking:
        return [source]
    if source.rejects:
        raise OptionError(
            f"rejects lists statements about labels alone, and {lacking[0].column!r} arrives late as well: leave out "
            "rejects (--rejects)",
            "rejects",
        )
    sources, absent = split_columns(source, lacking, engine)
    if not source.needed or source.column in schema.names:
        absent.pop(source.column, None)
    for error in absent.values():
        raise error
    return sources


def split_columns(
    source: LateSource, lacking: Sequence[LateSource], engine: Engine
) -> tuple[list[LateSource], dict[str, MissingColumnError]]:
    """The sources of columns that tables have, each with these tables: of the label, then of those that data lack.

    Also returns the errors of the columns that no table has. Raises as `_by_column`.
    """
    data, absent = dict[str, list[Any]](), dict[str, MissingColumnError]()
    for table in source.inputs():
        scans = []
        for one in (source, *lacking):
            try:
                scans.append(one.scan_input(table, engine))
            except MissingColumnError as error:
                if error.column != one.column:
                    raise
                absent.setdefault(one.column, error)
            else:
                data.setdefault(one.column, []).append(table)
        if not scans:
            raise absent[source.column]
        if any(found is not None and not found.splittable for found in scans):
            raise OptionError(
                "labels: columns that arrive late are read one by one, and a reader can be read only once: name files "
                "or a table",
                "labels",
            )
    sources = [replace(one, data=[data[one.column]]) for one in (source, *lacking) if one.column in data]
    return sources, {name: error for name, error in absent.items() if name not in data}
