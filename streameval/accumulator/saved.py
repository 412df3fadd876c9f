"""A saved accumulator: a directory with the state files of a store, and an index that names them.

The index carries its checksum, because it holds the options: a changed threshold or level would go unnoticed. Its names
are checked before anything is opened or deleted.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.accumulator.options import RUN_OPTIONS
from streameval.errors import FormatError, OptionError, SpillError, StoreError
from streameval.store.files.location import Location
from streameval.store.files.published import content_of, sealed, unsealed
from streameval.store.files.states import StateFiles

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streameval.budget import Budget

__all__ = ["read_index", "read_schema", "read_states", "write"]

_FORMAT = 1
_INDEX = "accumulator.json"


def write(folder: Path, options: dict[str, Any], schema: pa.Schema | None, states: Iterable[Any]) -> None:
    """Write states and an index; the index is replaced in one step, then the files of the last one are deleted.

    Raises
    ------
    OptionError
        If the directory holds something else.
    StoreError
        If it cannot be written.
    """
    try:
        _write(folder, options, schema, states)
    except SpillError:
        raise  # the directory is not at fault
    except OSError as error:
        msg = f"{folder}: cannot be written ({error.strerror or type(error).__name__}); choose another directory"
        raise StoreError(msg) from error


def _write(folder: Path, options: dict[str, Any], schema: pa.Schema | None, states: Iterable[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    held = {entry.name for entry in folder.iterdir()}
    if held and _INDEX not in held:
        msg = f"{folder}: holds something else than an accumulator; choose another directory"
        raise OptionError(msg)
    before: set[str] = set()
    with suppress(FormatError):  # saved over a damaged one, whose files stay
        before = set(read_index(folder)["states"]) if held else before
    files = StateFiles(Location.of(str(folder)))
    names = [files.write(state)[0] for state in states]
    text = None if schema is None else base64.b64encode(schema.serialize()).decode()
    new = folder / f"{_INDEX}.new"
    new.write_text(sealed({"format": _FORMAT, "options": options, "schema": text, "states": names}))
    new.replace(folder / _INDEX)
    for name in before - set(names):
        (folder / name).unlink(missing_ok=True)


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a directory.

    Raises
    ------
    FormatError
        If there is none, or it is damaged or of another version.
    """
    try:
        index = unsealed((folder / _INDEX).read_bytes())
        version = index["format"]
    except (OSError, FormatError, KeyError) as error:
        told = type(error).__name__ if isinstance(error, OSError) else error
        msg = f"{folder}: holds no accumulator that can be read ({told}); save it again"
        raise FormatError(msg) from error
    if version != _FORMAT:
        msg = f"{folder}: is of format {version}; this version of streameval reads {_FORMAT}: upgrade it"
        raise FormatError(msg)
    try:
        _check(**{name: value for name, value in index.items() if name != "format"})
    except (FormatError, TypeError, ValueError, OSError) as error:
        msg = f"{folder}: holds no accumulator that can be read ({error}); save it again"
        raise FormatError(msg) from error
    return index


def _check(options: Any, schema: Any, states: Any) -> None:
    """Raise `FormatError`, `TypeError`, `ValueError` or `OSError` unless an index is as `write` leaves it."""
    if not isinstance(options, dict) or not isinstance(states, list) or not options.keys().isdisjoint(RUN_OPTIONS):
        msg = "its index is of another make"
        raise FormatError(msg)
    for name in states:
        content_of(name)
    if schema is not None:
        _types(schema)


def read_schema(index: dict[str, Any]) -> pa.Schema | None:
    """The types of the columns; None before the first batch."""
    return None if index["schema"] is None else _types(index["schema"])


def _types(text: str) -> pa.Schema:
    """The types of an index."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


def read_states(folder: Path, index: dict[str, Any], budget: Budget) -> list[Any]:
    """The states that an index names."""
    files = StateFiles(Location.of(str(folder)), "save the accumulator again", "is not there any more; ")
    return [files.read(name, budget) for name in index["states"]]
