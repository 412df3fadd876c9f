"""A saved accumulator: a directory with state files, as in a store, and an index that lists them.

The index holds the options and has a checksum; otherwise a modified threshold or level would go unnoticed. The file
names in it are validated before any file is opened or deleted.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.accumulator.options import RUN_OPTIONS
from streameval.errors import FormatError, OptionError, SpillError, StoreError
from streameval.store.files.location import Location
from streameval.store.files.published import StateFiles, content_of, sealed, unsealed
from streameval.unfinished import make_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streameval.budget import Budget

_FORMAT = 1
_INDEX = "accumulator.json"


def write(folder: Path, options: dict[str, Any], schema: pa.Schema | None, states: Iterable[Any]) -> None:
    """Write states and an index. The index is replaced atomically, then files of the previous index are deleted.

    Raises
    ------
    OptionError
        If the directory holds other files but no accumulator.
    StoreError
        If the directory cannot be written.
    """
    try:
        _write(folder, options, schema, states)
    except SpillError:
        raise  # spilling failed, not this directory
    except OSError as error:
        msg = f"{folder}: cannot be written ({error.strerror or type(error).__name__}); choose another directory"
        raise StoreError(msg) from error


def _write(folder: Path, options: dict[str, Any], schema: pa.Schema | None, states: Iterable[Any]) -> None:
    make_folder(folder)
    held = {entry.name for entry in folder.iterdir()}
    if held and _INDEX not in held:
        msg = f"{folder}: holds something else than an accumulator; choose another directory"
        raise OptionError(msg)
    before: set[str] = set()
    with suppress(FormatError):  # the files of a damaged accumulator are left in place
        before = set(read_index(folder)["states"]) if held else before
    files = StateFiles(Location.of(str(folder)))
    names = [files.write(state)[0] for state in states]
    text = None if schema is None else base64.b64encode(schema.serialize()).decode()
    record = {"format": _FORMAT, "options": options, "schema": text, "states": names}
    Location.of(str(folder)).child(_INDEX).write(sealed(record).encode())
    for name in before - set(names):
        (folder / name).unlink(missing_ok=True)


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a directory.

    Raises
    ------
    FormatError
        If the index is missing, damaged or of another format version.
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
    """Raise `FormatError`, `TypeError`, `ValueError` or `OSError` if an index was not made by `write`."""
    if not isinstance(options, dict) or not isinstance(states, list) or not options.keys().isdisjoint(RUN_OPTIONS):
        msg = "its index is of another make"
        raise FormatError(msg)
    for name in states:
        content_of(name)
    if schema is not None:
        _types(schema)


def read_schema(index: dict[str, Any]) -> pa.Schema | None:
    """The schema of the batches; None if there was no batch yet."""
    return None if index["schema"] is None else _types(index["schema"])


def _types(text: str) -> pa.Schema:
    """Decode the schema of an index."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


def read_states(folder: Path, index: dict[str, Any], budget: Budget) -> list[Any]:
    """Read the states that an index lists."""
    files = StateFiles(Location.of(str(folder)), "save the accumulator again", "no longer exists; ")
    return [files.read(name, budget) for name in index["states"]]
