"""Checks that a store and its data are in separate directories, and that a store's directory holds nothing else."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from streameval.errors import OptionError
from streameval.scan.files.uris import Uri, local_path, shown
from streameval.wording import few

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.store.files.location import Location

PARTS = ("ledger", "states", "merged", "history", "checks")  # directories of a store
_TEMPORARY = (".crc", ".part", ".tmp")


def check_apart(location: Location, data: Any) -> None:
    """Raise `OptionError` if a store lies in its data, or the data in the store.

    Parameters
    ----------
    location : location of the store
    data : paths, patterns or URIs
    """
    named = [data] if isinstance(data, str | os.PathLike) else data
    if not isinstance(named, list | tuple):
        return  # refused later, when the data are listed
    store = _place(location.uri, local=location.local)
    for item in named:
        if not isinstance(item, str | os.PathLike):
            continue
        given = os.fspath(item)
        uri = Uri.parse(given)
        own = uri is None or uri.scheme == "file"
        if own != location.local:
            continue
        place = _place(given if uri is None or own else f"{uri.scheme}://{uri.path}", local=own)
        if any(c in place for c in "*?["):
            if _within(PurePosixPath(place).parent.as_posix(), store):
                _refuse(location, f"the data {shown(given)} lie in it")
        elif _within(place, store):
            _refuse(location, f"the data {shown(given)} lie in it")
        elif _within(store, place):
            _refuse(location, f"it lies in its data {shown(given)}")


def check_files(location: Location, paths: Iterable[str]) -> None:
    """Raise `OptionError` if files of the data lie in a store; `paths` are paths on the file system of the store."""
    start = f"{location.path.rstrip('/')}/"
    found = next((path for path in paths if path.startswith(start)), None)
    if found is not None:
        _refuse(location, f"{found}, which the data name, lies in it")


def check_empty(location: Location) -> None:
    """Raise `OptionError` if the directory of a new store holds other files.

    Hidden files, and temporary files of other tools, are ignored.
    """
    selector = fs.FileSelector(location.path, allow_not_found=True)
    names = [PurePosixPath(info.path).name for info in location.filesystem.get_file_info(selector)]
    others = sorted(name for name in names if name not in PARTS and not _passed_over(name))
    if others:
        msg = f"{location.name}: holds other files ({few(others)}); give the store its own directory"
        raise OptionError(msg)


def _passed_over(name: str) -> bool:
    """Whether a name is that of a hidden or temporary file, such as ``_SUCCESS`` or ``part-0.parquet.crc``."""
    return name.startswith((".", "_")) or name.lower().endswith(_TEMPORARY)


def _place(text: str, *, local: bool) -> str:
    """A comparable path: with symbolic links resolved, or starting with the bucket."""
    if not local:
        return "/" + _in_bucket(text)
    return os.path.realpath(local_path(text))


def _in_bucket(text: str) -> str:
    """Bucket and path of a URI."""
    return text.partition("://")[2].partition("?")[0].rpartition("@")[2].strip("/")


def _within(path: str, directory: str) -> bool:
    """Whether a path is a directory, or in it."""
    return f"{path.rstrip('/')}/".startswith(f"{directory.rstrip('/')}/")


def _refuse(location: Location, why: str) -> None:
    msg = f"{location.name}: {why}; a store and its data must be in separate directories: move one of them"
    raise OptionError(msg)
