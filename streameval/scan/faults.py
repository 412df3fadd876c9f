"""Faults of files: the messages for those that cannot be read, and checks that a file is the planned one.

A plan keeps the size and modification time of each file from the listing. A reader compares them with the open file
and, after its last read, compares the open file with the file that now has its name: by size, time and inode on a local
disk; by size, time and ETag in object storage (one more request per read). A file that was replaced, truncated,
extended or removed is an error; without an error, all reads saw the same version.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from streameval.errors import CorruptFileError, DataError, MissingInputError

if TYPE_CHECKING:
    from collections.abc import Iterator


READ_ERRORS = (OSError, EOFError, ValueError, KeyError, pa.ArrowException)  # that Arrow raises for damaged files
_SKIP = "on_error='skip' (--on-error skip) leaves it out"
_UNSUPPORTED = re.compile(
    r"not (currently )?supported|[Uu]nsupported|[Nn]ot.implemented|[Uu]nknown encoding|only support"
)
_DENIED = "permission denied; grant read access to it"
_FORMATS = {  # by ending: what it is, the format of pyarrow.dataset, and the table function of DuckDB
    **dict.fromkeys(("csv", "tsv"), ("a CSV file", "csv", "{}")),
    **dict.fromkeys(("json", "jsonl", "ndjson"), ("a JSON file", "json", "{}")),
    **dict.fromkeys(("feather", "arrow", "ipc"), ("an Arrow (Feather) file", "feather", "")),
    "orc": ("an ORC file", "orc", ""),
    "avro": ("an Avro file", "", "read_avro({})"),
    "xlsx": ("an Excel workbook", "", "read_xlsx({})"),
}
_DATASET = re.compile(r"give evaluate\(pyarrow.*, …\)( or )?")
_SIGNS = ("Error ACCESS_DENIED", "[errno 13]", "(os error 13)")
_NAMES = re.compile(r"'[^']*'|\S*/\S*")  # in a message, which say nothing about its reason


def reason(error: BaseException) -> str:
    r"""An exception's message on one line.

    >>> reason(OSError("Couldn't deserialize thrift:\n  bad header\n"))
    "Couldn't deserialize thrift: bad header"
    """
    return " ".join(str(error).split()) or type(error).__name__


def add_remedy(error: BaseException, remedy: str) -> str:
    """The reason for an error and its remedy; where permission was denied, nothing needs to be restored.

    >>> add_remedy(ValueError("bad header"), "restore it")
    'bad header; restore it'
    >>> add_remedy(PermissionError(13, "Permission denied"), "restore it")
    'permission denied; grant read access to it'
    """
    return _DENIED if _is_denied(error) else f"{reason(error)}; {remedy}"


def _is_denied(error: BaseException) -> bool:
    """Whether permission was denied, by Python, Arrow, deltalake or an object store."""
    text = _NAMES.sub("", str(error))
    return isinstance(error, PermissionError) or any(sign in text for sign in _SIGNS)


def unreadable(name: str, error: BaseException) -> DataError:
    """The library's exception for a file or directory that cannot be opened or read.

    Parameters
    ----------
    name : str
        The file, as the user named it.
    error : exception
        Exception of Arrow or the operating system; the caller raises the result from it.
    """
    if isinstance(error, FileNotFoundError):
        return MissingInputError(f"{name}: no such file or directory; check the path")
    if _is_denied(error):
        return CorruptFileError(f"{name}: {_DENIED}")
    if isinstance(error, UnicodeEncodeError):
        remedy = "rename it; on_error='skip' (--on-error skip) leaves it out of an evaluation"
        return CorruptFileError(f"{name}: cannot be read: its name is not UTF-8; {remedy}")
    if "Retry policy exhausted" in str(error):  # of Google's client
        detail = reason(error).partition("last message of ")[2].partition(" error_info=")[0]
        remedy = "check the network and the credentials, or wait longer with ?retry_limit_seconds=120 in the URI"
        return CorruptFileError(f"{name}: the storage does not answer: {detail}; {remedy}")
    detail = why_unreadable(name, error).removesuffix(".")
    remedy = "" if "not Parquet;" in detail else f"; {mending(detail)}"
    return CorruptFileError(f"{name}: cannot be read: {detail}{remedy}; {_SKIP}")


def why_unreadable(name: str, error: BaseException) -> str:
    """The reason for an error of a file; for a file of another format, what reads it.

    >>> why_unreadable("scores.orc", OSError("Parquet magic bytes not found in footer."))
    "it is an ORC file, not Parquet; give evaluate(pyarrow.dataset.dataset('scores.orc', format='orc'), …)"
    """
    detail = reason(error)
    kind, remedy = other_format(name) if "magic bytes" in detail else ("", "")
    return f"it is {kind}, not Parquet; {remedy}" if kind else detail


def other_format(name: str) -> tuple[str, str]:
    """The format that the ending of a file's name stands for, and how to read it; empty if it is unknown.

    >>> other_format("scores.csv")[0], other_format("scores.csv.gz")[0], other_format("scores.parquet")
    ('a CSV file', 'a CSV file', ('', ''))
    """
    whole = name.removesuffix(".gz")
    ending = whole.rpartition(".")[2]
    kind, arrow, duckdb = _FORMATS.get(ending.lower(), ("", "", ""))
    if not kind:
        return "", ""
    read = f"give evaluate(pyarrow.dataset.dataset({name!r}, format={arrow!r}), …)" if arrow else ""
    target = repr(f"{whole.removesuffix(ending)}parquet")
    copy = f'duckdb -c "COPY (FROM {duckdb.format(repr(name))}) TO {target}"'
    return kind, " or ".join(filter(None, (read, f"convert it with {copy}" if duckdb else "")))


def mending(detail: str, them: str = "it") -> str:
    """What to do with files that cannot be read, for a message; `detail` says why.

    >>> mending("Unknown encoding type")
    'write it again with another encoding and compression, as Arrow does not read these; if it is damaged, replace it'
    >>> mending("Corrupt snappy compressed data", "them")
    'replace or remove them'
    """
    if _UNSUPPORTED.search(_NAMES.sub("", detail)) is None:
        return f"replace or remove {them}"
    damaged = f"if {them} {'is' if them == 'it' else 'are'} damaged, replace {them}"
    return f"write {them} again with another encoding and compression, as Arrow does not read these; {damaged}"


def cause(text: str) -> str:
    """A message of `unreadable` without its remedy.

    >>> cause(str(unreadable("a.parquet", OSError("bad header"))))
    'a.parquet: cannot be read: bad header'
    """
    detail = text.removesuffix(f"; {_SKIP}")
    return detail.removesuffix(f"; {mending(detail)}")


def of_labels(error: DataError, column: str = "") -> CorruptFileError:
    """`unreadable` for a file of labels: it is never left out, and a store takes no dataset in its place.

    >>> print(of_labels(unreadable("a.csv", OSError("no magic bytes"))))
    a.csv: cannot be read: it is a CSV file, not Parquet; convert it with duckdb -c "COPY (FROM 'a.csv') TO 'a.parquet'"
    """
    text = str(error).removesuffix(f"; {_SKIP}").removesuffix(" (on_error='skip' leaves it out)")
    text = text.replace(": cannot be read", f": column {column!r} cannot be read", 1) if column else text
    return CorruptFileError(_DATASET.sub(lambda read: "" if read[1] else "write it as Parquet", text))


SECOND = 10**9  # nanoseconds
Version = tuple[int, int | None, object]  # size, time, and what tells versions of equal size and time apart


class ChangedFileError(OSError):
    """A file has changed since it was planned."""


@contextmanager
def opened(filesystem: fs.FileSystem, path: str, size: int | None, mtime: int | None) -> Iterator[pa.NativeFile]:
    """Open a file that must not change until the context ends.

    Parameters
    ----------
    filesystem, path : location of the file
    size, mtime : planned size in bytes and modification time in nanoseconds since 1970; None if unknown

    Raises
    ------
    ChangedFileError
        If the file is not the planned one, or has changed when the context ends; also in place of an error that was
        raised while reading.
    """
    local = isinstance(filesystem, fs.LocalFileSystem)
    with pa.OSFile(path) if local else filesystem.open_input_file(path) as handle:
        before = _local(os.fstat(handle.fileno())) if local else _remote(handle)
        found, changed = before[:2]
        if size not in (None, found):
            raise ChangedFileError(
                f"it has {found:,} bytes where the listing said {size:,}: it was replaced or changed since"
            )
        unit = 1 if local else SECOND  # times in headers are in whole seconds
        if mtime is not None and changed is not None and changed // unit != mtime // unit:
            raise ChangedFileError("it was replaced or changed since it was listed")
        try:
            yield handle
        except (OSError, pa.ArrowException) as error:
            _refuse_change(filesystem, path, before, error)
            raise
        _refuse_change(filesystem, path, before)


def _local(found: os.stat_result) -> Version:
    return found.st_size, found.st_mtime_ns, (found.st_ino, found.st_dev)


def _remote(handle: pa.NativeFile) -> Version:
    """Size, time and ETag of an object; None for what the storage does not report."""
    metadata = handle.metadata() or {}
    time = metadata.get(b"Last-Modified") or metadata.get("Last-Modified")
    etag = metadata.get(b"ETag") or metadata.get("ETag")
    return handle.size(), None if time is None else _nanoseconds(time), etag


def _nanoseconds(time: bytes | str) -> int | None:
    """A time in a header as nanoseconds since 1970; None if it is not in the format of S3."""
    try:
        text = time.decode() if isinstance(time, bytes) else time
        return int(datetime.fromisoformat(text).timestamp()) * SECOND
    except ValueError:
        return None


def _refuse_change(filesystem: fs.FileSystem, path: str, before: Version, cause: BaseException | None = None) -> None:
    """Raise `ChangedFileError` if the file at `path` is no longer the open one."""
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            now = _local(os.stat(path))  # noqa: PTH116 - a path object takes longer than the call
        else:
            with filesystem.open_input_file(path) as handle:
                now = _remote(handle)
    except FileNotFoundError as error:
        raise ChangedFileError("it was removed while it was read") from error
    if now != before:
        raise ChangedFileError("it was replaced or changed while it was read") from cause
