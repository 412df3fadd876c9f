"""A saved accumulator: a directory with the state files of a store, and an index that names them."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import FormatError, OptionError
from streameval.store.files.location import Location
from streameval.store.files.states import StateFiles

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streameval.budget import Budget

__all__ = ["read_index", "read_schema", "read_states", "write"]

_FORMAT = 1
_INDEX = "accumulator.json"


def write(folder: Path, options: dict[str, Any], schema: pa.Schema | None, states: Iterable[Any]) -> None:
    """Write states and an index; the index is replaced in one step, then the files of the last one are deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {entry.name for entry in folder.iterdir()}
    if held and _INDEX not in held:
        msg = f"{folder}: holds something else than an accumulator; choose another directory"
        raise OptionError(msg)
    before = set(read_index(folder)["states"]) if held else set()
    files = StateFiles(Location.of(str(folder)))
    names = [files.write(state)[0] for state in states]
    text = None if schema is None else base64.b64encode(schema.serialize()).decode()
    new = folder / f"{_INDEX}.new"
    new.write_text(json.dumps({"format": _FORMAT, "options": options, "schema": text, "states": names}))
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
        index: dict[str, Any] = json.loads((folder / _INDEX).read_text())
        version = index["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{folder}: holds no accumulator that can be read ({type(error).__name__}); save it again"
        raise FormatError(msg) from error
    if version != _FORMAT:
        msg = f"{folder}: is of format {version}; this version of streameval reads {_FORMAT}: upgrade it"
        raise FormatError(msg)
    return index


def read_schema(index: dict[str, Any]) -> pa.Schema | None:
    """The types of the columns; None before the first batch."""
    text = index["schema"]
    return None if text is None else pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


def read_states(folder: Path, index: dict[str, Any], budget: Budget) -> list[Any]:
    """The states that an index names."""
    files = StateFiles(Location.of(str(folder)))
    return [files.read(name, budget) for name in index["states"]]
