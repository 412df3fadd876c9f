"""Messages for files that cannot be read."""

from __future__ import annotations

import re

import pyarrow as pa

from streameval.errors import CorruptFileError, DataError, MissingInputError

READ_ERRORS = (OSError, ValueError, KeyError, pa.ArrowException)  # exceptions that Arrow raises for damaged files
_SKIP = "on_error='skip' (--on-error skip) leaves it out"
_UNSUPPORTED = re.compile(
    r"not (currently )?supported|[Uu]nsupported|[Nn]ot.implemented|[Uu]nknown encoding|only support"
)
_DENIED = "permission denied; grant read access to it"
_SIGNS = ("Error ACCESS_DENIED", "[errno 13]", "(os error 13)")
_NAMES = re.compile(r"'[^']*'|\S*/\S*")  # in a message, which say nothing about its reason


def reason(error: BaseException) -> str:
    r"""An exception's message on one line.

    >>> reason(OSError("Couldn't deserialize thrift:\n  bad header\n"))
    "Couldn't deserialize thrift: bad header"
    """
    return " ".join(str(error).split()) or type(error).__name__


def remedied(error: BaseException, remedy: str) -> str:
    """The reason for an error and its remedy; where permission was denied, nothing needs to be restored.

    >>> remedied(ValueError("bad header"), "restore it")
    'bad header; restore it'
    >>> remedied(PermissionError(13, "Permission denied"), "restore it")
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
    detail = reason(error).removesuffix(".")
    return CorruptFileError(f"{name}: cannot be read: {detail}; {mending(detail)}; {_SKIP}")


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
