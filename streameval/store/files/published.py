"""Published files: immutable, complete once they have a name, and verified whenever they are read.

A file is written under a temporary name (next to its final one on a local disk, in the system's temporary folder for
an object store), hashed, and then renamed, or put as one object. Its name is the SHA-256 of its bytes and 16 random
hexadecimal digits that are new for each publication:

- the hash is checked on every read, so a damaged, truncated or exchanged file is refused by name;
- a name is never used twice, so deleting an unreferenced file cannot delete a later copy of it;
- any other name, such as one that leads out of the directory, is refused before anything is opened.

A killed process leaves at most unreferenced files; an update that fails deletes its own (`PublishedFiles.undone`).
`sealed` protects small JSON records in the same way.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
import uuid
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
from pyarrow import fs

from streameval.errors import FormatError, StoreError
from streameval.scan import READ_ERRORS, reason
from streameval.unfinished import make_folder, publish, unfinished

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from typing import Self

    from streameval.store.files.location import Location

CHUNK = 16 << 20  # bytes sent at a time
SUFFIX = ".parquet"
_NAME = re.compile(rf"([0-9a-f]{{64}})(?:-[0-9a-f]{{16}})?{re.escape(SUFFIX)}")  # early stores have no random digits


@dataclass
class _Made:
    """The names of files published in a block, and whether it has failed."""

    names: list[str] = field(default_factory=list)
    unwanted: bool = False


class PublishedFiles:
    """The published files of a directory.

    Parameters
    ----------
    location : Location
        The directory; publishing the first file creates it.

    Examples
    --------
    >>> from streameval.store.files.location import Location
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = PublishedFiles(Location.of(folder))
    ...     names = [files.publish(lambda sink: sink.write(b"content"))[0] for _ in range(2)]
    ...     files.load(names[0]).to_pybytes(), names[0] == names[1], content_of(names[0]) == content_of(names[1])
    (b'content', False, True)
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.made: _Made | None = None  # see `undone`

    @contextmanager
    def undone(self) -> Iterator[Self]:
        """The same files; those published through the yielded object are deleted if the block fails.

        A full disk needs their room. Files that other processes publish are left for vacuum.
        """
        files, made = copy(self), _Made()
        files.made = made
        try:
            yield files
        except BaseException:
            made.unwanted = True  # other threads may be about to publish
            with suppress(*READ_ERRORS):
                self.delete(made.names)
            raise

    def publish(self, write: Callable[[BinaryIO], Any]) -> tuple[str, int]:
        """Publish the bytes that `write` writes to a file; returns the new name and the size in bytes.

        Raises
        ------
        StoreError
            If the store cannot be written.
        """
        made = self.made
        try:
            with self._part() as part:
                with part.open("wb") as sink:
                    write(sink)
                with part.open("rb") as written:
                    digest = hashlib.file_digest(written, "sha256").hexdigest()
                name, size = f"{digest}-{uuid.uuid4().hex[:16]}{SUFFIX}", part.stat().st_size
                self._rename(part, name)
                if made is not None:
                    made.names.append(name)
                    if made.unwanted:
                        self.delete([name])
        except OSError as error:
            msg = f"{self.location.name}: cannot be written: {reason(error)}; nothing was committed"
            raise StoreError(msg) from error
        return name, size

    def load(self, name: str) -> pa.Buffer:
        """The bytes of a file, mapped into memory on a local disk.

        Raises
        ------
        FormatError
            If the bytes differ from those published, or `name` is not the name of a published file.
        """
        digest = content_of(name)
        if hashlib.sha256(data := self._bytes(name)).hexdigest() != digest:
            msg = "its bytes are not those that were written (damaged, truncated or exchanged)"
            raise FormatError(msg)
        return data

    def sound(self, name: str) -> bool:
        """Whether a file exists and is undamaged."""
        with suppress(FormatError, *READ_ERRORS):
            return bool(self.load(name))
        return False

    def list(self) -> Iterator[tuple[str, int, float]]:
        """Name, size in bytes and modification time (seconds since 1970) of every file in the directory."""
        selector = fs.FileSelector(self.location.path, allow_not_found=True)
        for info in self.location.filesystem.get_file_info(selector):
            if info.type == fs.FileType.File:
                yield info.base_name, info.size, (info.mtime_ns or 0) / 1e9

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        """The names without a file on the local disk; empty for a bucket, which all processes share."""
        return [name for name in names if self.location.local and not Path(self.location.child(name).path).is_file()]

    def unneeded(self, needed: Container[str], oldest: float = math.inf) -> dict[str, int]:
        """Size in bytes, by name, of the files that are not needed and were last modified at `oldest` or earlier."""
        return {name: size for name, size, when in self.list() if name not in needed and when <= oldest}

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are skipped."""
        for name in names:
            with suppress(FileNotFoundError):
                self.location.filesystem.delete_file(self.location.child(name).path)

    def _bytes(self, name: str) -> pa.Buffer:
        """The bytes of a file, not verified."""
        path = self.location.child(name).path
        if self.location.local:
            with pa.memory_map(path) as file:
                return file.read_buffer()
        with self.location.filesystem.open_input_file(path) as file:
            return file.read_buffer()

    @contextmanager
    def _part(self) -> Iterator[Path]:
        """A temporary path; the file is deleted at the end if it still exists."""
        if self.location.local:
            folder = Path(self.location.path)
            make_folder(folder)
        else:
            folder = Path(tempfile.gettempdir())
        with unfinished(folder / f".{uuid.uuid4().hex}.part") as part:
            yield part

    def _rename(self, part: Path, name: str) -> None:
        """Give a complete file its name."""
        where = self.location.child(name)
        if where.local:
            publish(part, Path(where.path), sought=False)
            return
        with part.open("rb") as source, where.filesystem.open_output_stream(where.path) as target:
            while chunk := source.read(CHUNK):
                target.write(chunk)


def content_of(name: str) -> str:
    """The hash of a file's content, from its name.

    Raises
    ------
    FormatError
        If it is not the name of a published file.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        msg = f"{name!r} is not the name of a file of a store; it was not opened"
        raise FormatError(msg)
    return found[1]


def sealed(record: dict[str, Any]) -> str:
    """Encode a record as JSON with a checksum.

    Examples
    --------
    >>> unsealed(sealed({"format": 1}))
    {'format': 1}
    """
    return json.dumps(record | {"sha256": _checksum(record)})


def unsealed(text: str | bytes) -> dict[str, Any]:
    """Decode and verify a result of `sealed`.

    Raises
    ------
    FormatError
        If the checksum is missing or wrong.
    """
    try:
        record = json.loads(text)
        seal = record.pop("sha256")
        if seal != _checksum(record):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        msg = "its checksum is missing or wrong (damaged or written by other software)"
        raise FormatError(msg) from None
    return dict(record)


def _checksum(record: dict[str, Any]) -> str:
    """The checksum of a record."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
