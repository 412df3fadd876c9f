"""Trees of Arrow expressions.

Arrow does not expose the tree of an expression, but pickles it as a record batch: the metadata of its schema spell the
tree in prefix order, and its columns hold the literals and options. The metadata repeat keys, so they are read through
Arrow's C data interface. An expression whose pickle is not understood has no tree, and then prunes nothing.
"""

from __future__ import annotations

import ctypes
import io
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from streameval.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.compute as pc


@dataclass(frozen=True)
class Node:
    """A part of an expression.

    Attributes
    ----------
    call : name of a function; ``field``, with the name of the column as its value; or ``literal``, with its scalar
    arguments : the arguments of a function
    value : see `call`; the scalar with the options of a function, or None
    columns : the columns that it reads, in the order of their first occurrence
    pickled : how Arrow pickles it
    """

    call: str
    arguments: tuple[Node, ...]
    value: Any
    columns: tuple[str, ...]
    pickled: _Pickled

    def expression(self) -> pc.Expression:
        """An expression of this part alone."""
        return self.pickled.expression()


@dataclass(frozen=True)
class _Pickled:
    """A pickled expression: how to load it, the record batch, and the entries of its metadata."""

    load: Any
    batch: pa.RecordBatch
    entries: Sequence[tuple[bytes, bytes]]

    def expression(self) -> pc.Expression:
        batch = self.batch.replace_schema_metadata(pa.KeyValueMetadata(self.entries))
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return self.load(pa.py_buffer(sink.getvalue()))

    def tree(self) -> Node:
        """The tree of the entries; not by recursion, since a chain of conditions may be longer than Python's stack."""
        opened: list[tuple[int, str, list[Node]]] = [(0, "", [])]
        options = None
        for at, (key, text) in enumerate(self.entries):
            if key == b"call":
                opened.append((at, text.decode(), []))
            elif key == b"options":
                options = self.batch.column(int(text))[0]
            elif key == b"end":
                start, call, arguments = opened.pop()
                columns = tuple(dict.fromkeys(column for argument in arguments for column in argument.columns))
                part = replace(self, entries=self.entries[start : at + 1])
                opened[-1][2].append(Node(call, _flat(call, arguments), options, columns, part))
                options = None
            elif key == b"literal":
                literal = self.batch.column(int(text))[0]
                opened[-1][2].append(Node("literal", (), literal, (), replace(self, entries=[(key, text)])))
            elif key == b"field_ref":
                name = text.decode()
                opened[-1][2].append(Node("field", (), name, (name,), replace(self, entries=[(key, text)])))
            else:
                raise ValueError(f"an entry {key!r}")
        (root,) = opened[0][2]
        return root


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
        return _Pickled(load, batch, _metadata(batch.schema)).tree()
    except (pa.ArrowException, ValueError, TypeError, IndexError):
        return None


def _metadata(schema: pa.Schema) -> list[tuple[bytes, bytes]]:
    """All entries of the metadata of a schema; those of equal keys as well."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    start = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2]  # format, name, metadata
    at, texts = (start or 0) + 4, list[bytes]()
    for _ in range(2 * _int32(start)):
        size = _int32(at)
        texts.append(ctypes.string_at(at + 4, size))
        at += 4 + size
    return list(pairwise(texts))[::2]


def _int32(address: Any) -> int:
    return int(ctypes.cast(address, ctypes.POINTER(ctypes.c_int32))[0])


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


def evaluated(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """An expression for each row of a table."""
    from pyarrow import acero

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["kept"]), inputs=[source])
    return project.to_table(use_threads=False).column("kept")
