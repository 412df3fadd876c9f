"""Messages for files that cannot be read."""

from __future__ import annotations

import pyarrow as pa

from streameval.errors import CorruptFileError, DataError, MissingInputError

__all__ = ["READ_ERRORS", "reason", "unreadable"]

READ_ERRORS = (OSError, ValueError, KeyError, pa.ArrowException)  # exceptions that Arrow raises for damaged files


def reason(error: BaseException) -> str:
    r"""An exception's message on one line.

    >>> reason(OSError("Couldn't deserialize thrift:\n  bad header\n"))
    "Couldn't deserialize thrift: bad header"
    """
    return " ".join(str(error).split()) or type(error).__name__


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
    if isinstance(error, PermissionError) or "ACCESS_DENIED" in str(error) or "errno 13" in str(error):
        return CorruptFileError(f"{name}: permission denied; grant read access to it")
    if isinstance(error, UnicodeEncodeError):
        remedy = "rename it; on_error='skip' (--on-error skip) leaves it out of an evaluation"
        return CorruptFileError(f"{name}: cannot be read: its name is not UTF-8; {remedy}")
    if "Retry policy exhausted" in str(error):  # of Google's client
        detail = reason(error).partition("last message of ")[2].partition(" error_info=")[0]
        remedy = "check the network and the credentials, or wait longer with ?retry_limit_seconds=120 in the URI"
        return CorruptFileError(f"{name}: the storage does not answer: {detail}; {remedy}")
    remedy = "replace or remove it; on_error='skip' (--on-error skip) leaves it out"
    return CorruptFileError(f"{name}: cannot be read: {reason(error).removesuffix('.')}; {remedy}")
