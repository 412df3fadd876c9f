"""Write files atomically and durably, and results in the format that a file's name ends in.

A new file is written next to the old one, under a temporary name, and then replaces it. A file that has its name
survives a power cut: `publish` writes its content to the disk, renames it, and then writes its directory. Without the
first, the name may lead to an empty file after a cut; without the last, to none.

An interrupted command ends without waiting for its threads, so the files that they were writing are deleted by
`delete_all`. A killed process leaves its unfinished files, whose names end in ``.part``.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from contextlib import contextmanager, nullcontext, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from streameval.errors import OptionError, StreamevalError
from streameval.forks import on_fork
from streameval.wording import few, text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    import pyarrow as pa

    T = TypeVar("T")


_FILES: set[Path] = set()
on_fork(_FILES.clear)  # those of the parent are not for a child to delete
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # of file systems that write directories at once, or never


def publish(part: Path, path: Path, *, sought: bool = True) -> None:
    """Give a complete file its name, durably.

    A name that is not `sought` until this has returned is given first, which saves the file system one of two writes of
    its journal.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with unfinished(Path(folder, "part")) as part:
    ...         size = part.write_bytes(b"whole")
    ...         publish(part, Path(folder, "file"))
    ...     [path.name for path in Path(folder).iterdir()]
    ['file']
    """
    if sought:
        sync(part)
    part.replace(path)
    if not sought:
        sync(path)
    sync(path.parent)


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def make_folder(path: Path) -> None:
    """Make a directory and its missing parents, durably."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """A temporary path; the file is deleted at the end if it was not renamed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with unfinished(Path(folder, "part")) as part:
    ...         size = part.write_bytes(b"half")
    ...     part.exists()
    False
    """
    _FILES.add(path)
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        _FILES.discard(path)


def delete_all() -> None:
    """Delete all unfinished files of this process, which must end at once."""
    for path in list(_FILES):
        with suppress(OSError):
            path.unlink(missing_ok=True)


TABULAR = ("csv", "parquet")  # formats of one table
LINEAGE = "openlineage.json"  # assertions of rules for OpenLineage
_FORMULA = (*"=+-@", *"\t\r\n", *"\uff1d\uff0b\uff0d\uff20")  # what spreadsheets run, also in full width
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def ending(path: str | os.PathLike[str], formats: Sequence[str], option: str = "out") -> str:
    """The extension of a file name, without the dot; `option` is the one that named the file.

    Raises
    ------
    OptionError
        If it is none of the formats.

    Examples
    --------
    >>> ending("page.HTML", ["json", "html"])
    'html'
    """
    name = Path(path).name.lower()
    suffix = LINEAGE if name.endswith(f".{LINEAGE}") else name.rpartition(".")[2] if "." in name[1:] else ""
    if suffix not in formats:
        *others, last = (f".{name}" for name in formats)
        listed = f"{', '.join(others)} or {last}" if others else last
        raise OptionError(f"{option}={os.fspath(path)!r} does not say in which format: end it in {listed}")
    return suffix


def check_local(path: str | os.PathLike[str]) -> None:
    """Raise `OptionError` if a file or directory to write is given as a URI, or has a null byte."""
    text = os.fspath(path)
    if "\0" in text:
        raise OptionError(f"{text!r}: a path cannot have a null byte; check it")
    if "://" in text:
        raise OptionError(
            f"{text}: results are written to a local disk, not to a URI; name a local path and copy it afterwards"
        )


def check_writable(*paths: str | os.PathLike[str]) -> None:
    """Raise, before anything is computed, if a file cannot be written, or two results would share one.

    Raises
    ------
    StreamevalError
        If its directory is not there or not writable, or it is a directory.
    OptionError
        If one is named twice, or is a URI.
    """
    for path in paths:
        check_local(path)
    places = [Path(path) for path in paths]
    for path in places:
        if not path.parent.is_dir():
            raise StreamevalError(f"{path}: its directory does not exist; make it first")
        if path.is_dir():
            raise StreamevalError(f"{path}: is a directory; name a file")
        if not path.exists() and not os.access(path.parent, os.W_OK):
            raise StreamevalError(f"{path}: its directory cannot be written to")
    resolved = [path.resolve() for path in places]
    if twice := {str(path) for path, real in zip(places, resolved, strict=True) if resolved.count(real) > 1}:
        raise OptionError(f"{few(sorted(twice))}: named twice; name each file once")


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a whole file or nothing; links are followed, pipes and devices are written directly.

    Raises
    ------
    StreamevalError
        If it cannot be written; what was there before is as it was. A closed pipe raises `BrokenPipeError`.
    """
    import secrets  # this loads OpenSSL

    target = Path(path).resolve()
    special = target.exists() and not target.is_file()
    part = target if special else target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        with nullcontext() if special else unfinished(part):
            part.write_bytes(content.encode() if isinstance(content, str) else content)
            if not special:
                if target.exists():
                    shutil.copymode(target, part)
                publish(part, target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StreamevalError(f"{path}: cannot be written ({error.strerror})") from error


def save(
    path: str | os.PathLike[str], texts: Mapping[str, Callable[[], str]], table: Callable[[], pa.Table] | None = None
) -> None:
    """Write a result in the format that the file's name ends in.

    Parameters
    ----------
    path : the file
    texts : what makes each text format, such as ``html``
    table : what makes the table for `TABULAR`, if there is one

    Raises
    ------
    OptionError
        If the name ends in something else.
    StreamevalError
        If the file cannot be written.
    """
    kind = ending(path, list(dict.fromkeys([*texts, *(TABULAR if table is not None else ())])))
    check_writable(path)
    if kind in texts or table is None:
        write_whole(path, texts[kind]())
    else:
        write_whole(path, _tabular(table(), kind))


class AsJson:
    """A result with plain values, which JSON can hold."""

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        raise NotImplementedError

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


class Saved(AsJson):
    """A result that can be written to a file: as JSON, as a table, or as a page."""

    def to_arrow(self) -> pa.Table:
        """The result as one table."""
        raise NotImplementedError

    def to_html(self) -> str:
        """One page, as the text of a self-contained HTML file."""
        raise NotImplementedError

    def exports(self) -> Mapping[str, Callable[[], str]]:
        """What makes further text formats, such as ``prom``."""
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file that ends in ``.json``, ``.csv``, ``.parquet`` or ``.html``.

        Values and judgements also go to ``.prom``, in the Prometheus text format, and judgements of rules to
        ``.openlineage.json``, as data-quality assertions of OpenLineage.

        In CSV, a quote (') precedes texts that a spreadsheet would run as a formula: those that begin with ``=``,
        ``+``, ``-``, ``@``, a tab or the end of a line, and are not numbers.

        Raises
        ------
        OptionError
            If the name has another ending.
        StreamevalError
            If it cannot be written; an existing file is replaced once the new one is complete.
        """
        own = {"csv": self.to_csv} if hasattr(self, "to_csv") else {}  # else the table as CSV
        texts = {"json": lambda: self.to_json(indent=2) + "\n", **own, "html": self.to_html, **self.exports()}
        save(path, texts, self.to_arrow)


def csv_cell(value: T) -> T | str:
    """A value for CSV: a quote precedes a text that a spreadsheet would run as a formula; numbers are unchanged.

    Examples
    --------
    >>> csv_cell("=HYPERLINK(1)"), csv_cell("-1.5"), csv_cell(-1.5), csv_cell("a=b")
    ("'=HYPERLINK(1)", '-1.5', -1.5, 'a=b')
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _tabular(table: pa.Table, kind: str) -> bytes:
    """A table as Parquet, or as CSV: texts in quotes, so that an empty one is not null, and none a formula."""
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink)
        return bytes(sink.getvalue())
    for i, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):  # as in JSON: bytes that are not valid UTF-8 are escaped
            values = table.column(i).to_pylist()
            texts = [None if value is None else text_of_bytes(value) for value in values]
            table = table.set_column(i, field.name, pa.array(texts, pa.string()))
    kinds = [pa.string() if pa.types.is_nested(field.type) else field.type for field in table.schema]
    table = table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            cells = [None if text is None else csv_cell(text) for text in table.column(i).to_pylist()]
            table = table.set_column(i, field.name, pa.array(cells, field.type))
    csv.write_csv(table.rename_columns(list(map(csv_cell, table.column_names))), sink)
    return bytes(sink.getvalue())
