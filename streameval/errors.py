"""The exceptions of streameval, as one tree.

::

    StreamevalError
    ├── DataError (ValueError)            the data are at fault
    │   ├── MissingInputError             no such path, an empty glob, no rows
    │   ├── MissingColumnError            a requested column is not there
    │   ├── SchemaError                   a column has a type that cannot be used, or files disagree
    │   ├── CorruptFileError              a file cannot be read
    │   ├── LabelError                    the labels are not two classes
    │   ├── NullError                     nulls or NaN that no policy allows
    │   └── WeightError                   a negative, NaN or infinite weight
    ├── OptionError (ValueError)          an argument is out of its range, or two exclude each other
    ├── IncompatibleStatesError (ValueError)   two states of different specs were merged
    ├── FormatError                       a stored state cannot be read
    ├── StoreError                        a store cannot be opened, or another update came first
    ├── SpillError (OSError)              the spill directory is full, or cannot be written or read
    └── ClusterError                      a scheduler or worker is gone, out of memory, or of another version

Every message is one line that names the file, the column and the remedy, where there is one. The command line prints
it and exits with status 1, or 2 for an `OptionError`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from streameval.wording import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

# user:secret@ after a scheme, and user@ before a bucket; of a host with a port, only paths of HDFS may have an @.
# A secret may hold blanks, but a blank after the colon begins what a message says of a URI.
_AFTER_COLON = r":(?:[^\s'\"]*@|(?!\s)[^@'\"]*@(?:[^\s'\"]*@)?)"
_CREDENTIALS = re.compile(
    rf"(\b(?:s3a?|gc?s)\s?:/*)[^\s/@:'\"]*(?:{_AFTER_COLON}|@)"
    rf"|(?<![\w+.-])(?!(?:hdfs|viewfs)\s?:/+[^\s/@:]*:\d+(?:/|$))([a-zA-Z][\w+.-]*\s?:/+)[^\s/@:'\"]*{_AFTER_COLON}",
    re.IGNORECASE,
)
_OPTIONS = re.compile(r"([a-zA-Z][\w+.-]*:/[^\s?'\"]*)\?[?;&]*[\w.-]+=[^\s'\"]*[^\s'\":,;]")


def mask_credentials(text: str) -> str:
    """A message in which no URI, or what was meant to be one, shows its credentials or options.

    Examples
    --------
    >>> mask_credentials("s3:/key:sec/ret@bucket/x?option=value: no such file")
    's3:/…@bucket/x: no such file'
    >>> mask_credentials("s3://key:sec ret@bucket/x, s3://bucket/y: no such file, ask me@example.org")
    's3://…@bucket/x, s3://bucket/y: no such file, ask me@example.org'
    """
    return _OPTIONS.sub(r"\1", _CREDENTIALS.sub(r"\1\2…@", text))


class StreamevalError(Exception):
    r"""Root of everything streameval raises on purpose; its message is one line and shows no credentials.

    Names and values from data may hold escape sequences, which a terminal or a log would obey: they are spelled out.

    Examples
    --------
    >>> print(StreamevalError("no column \x1b[2J at s3://key:secret@bucket"))
    no column \x1b[2J at s3://…@bucket
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(visible(mask_credentials(arg)) if isinstance(arg, str) else arg for arg in args))


class DataError(StreamevalError, ValueError):
    """The data cannot be evaluated as asked."""


class MissingInputError(DataError):
    """A path does not exist, a glob matches nothing, or the input has no rows.

    Parameters
    ----------
    message : str
    skipped : sequence of (file, reason)
        Files of the input that cannot be read.
    empty : bool
        Whether the input exists, but has no rows.
    """

    def __init__(self, message: str = "", skipped: Sequence[tuple[str, str]] = (), *, empty: bool = False) -> None:
        super().__init__(message)
        self.skipped = tuple(skipped)
        self.empty = empty


class MissingColumnError(DataError):
    """A requested column is not in the data.

    Parameters
    ----------
    message : str
    column : str
        Name of the column.
    similar : str
        A column with a similar name, or the parent of a missing field; empty if there is none.
    """

    def __init__(self, message: str = "", column: str = "", similar: str = "") -> None:
        super().__init__(message)
        self.column, self.similar = column, similar


class SchemaError(DataError):
    """A column has a type that cannot be used, or files disagree beyond lossless widening."""


class CorruptFileError(DataError):
    """A file cannot be read: truncated, damaged or not Parquet."""


class LabelError(DataError):
    """The labels are not two classes, or it is unclear which one is positive."""


class NullError(DataError):
    """Nulls or NaN where the policy says ``error``."""


class WeightError(DataError):
    """A weight is negative, NaN or infinite."""


class OptionError(StreamevalError, ValueError):
    """An argument is out of its range, or two arguments exclude each other.

    Parameters
    ----------
    message : str
    arguments : str
        Names of the arguments that the message mentions without a value; those with a value, as in ``memory=0``, are
        found in the text. The command line replaces them by its options.
    """

    def __init__(self, message: str = "", *arguments: str) -> None:
        super().__init__(message)
        self.arguments = arguments


class IncompatibleStatesError(StreamevalError, ValueError):
    """Two states of different specs cannot be merged."""


class FormatError(StreamevalError):
    """A stored state is damaged, foreign, or of an unknown version."""


class StoreError(StreamevalError):
    """A store is not there, is of an unknown version, or was changed by another update."""


class SpillError(StreamevalError, OSError):
    """The spill directory is full, or cannot be written or read."""

    def __str__(self) -> str:
        return super().__str__() if self.filename is None else f"{self.filename}: {self.strerror}"


class ClusterError(StreamevalError):
    """A scheduler or a worker cannot be reached, has died, or has another version of streameval."""
