"""Recognition: which of the files that a listing found are Parquet.

A name that ends in ``.parquet``, ``.parq`` or ``.pq`` says so. Hive and Impala write ``000000_0``, others
``part-0.parquet.gz`` or no suffix at all. Among those, names that differ only in numbers, UUIDs or hashes are one
*kind*, as one writer wrote them. Some files of each kind are opened, until one begins with ``PAR1``. Then all of its
kind are read, and refused if damaged; otherwise all are left out, and told with the numbers of them and of those that
were opened. Opening every file would take two requests per object each time that a store looks for new nights.

Empty files, which Hive writes for buckets without rows, and copies (``a.parquet.bak`` beside ``a.parquet``) are left
out and told as well.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from streameval.scan.messages import READ_ERRORS
from streameval.scan.parquet.ranges import exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.scan.files.walk import Entry

SUFFIXES = (".parquet", ".parq", ".pq")
OPENED = 16  # largest number of files of a kind that are opened
_MAGIC = (b"PAR1", b"PARE")  # the second one is of files with an encrypted footer
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NUMBERS = re.compile(rf"{_UUID}|[0-9a-f]{{8,}}|[0-9]+", re.IGNORECASE)  # shorter hexadecimal numbers may be words


def recognise(files: Sequence[Entry], filesystem: Any) -> tuple[list[Entry], list[tuple[Entry, str]]]:
    """The files that are Parquet, and the others, each with the reason why it is left out.

    Parameters
    ----------
    files : the files of a listing, without those that are hidden or temporary
    filesystem : their file system
    """
    data = [file for file in files if file.path.lower().endswith(SUFFIXES)]
    if len(data) == len(files):
        return data, []
    named = {file.path for file in data}
    kinds: dict[str, list[Entry]] = {}
    others: list[tuple[Entry, str]] = []
    for file in (file for file in files if file.path not in named):
        if posixpath.splitext(file.path)[0] in named:
            others.append((file, "named like a copy of the file without this suffix; rename it to have it read, or "))
        elif file.size == 0:
            others.append((file, "empty; "))
        else:
            kinds.setdefault(_kind(file), []).append(file)
    for kind in kinds.values():
        sample = _sample(kind)
        if any(_is_parquet(file, filesystem) for file in sample):
            data += kind
        else:
            opened = f" ({len(sample)} of them were opened)" if len(sample) < len(kind) else ""
            others += [(file, f"not Parquet, which begins with PAR1{opened}; ") for file in kind]
    remedy = _exclusion(data)
    return data, [(file, f"{reason}{remedy}") for file, reason in others]


def _exclusion(data: Sequence[Entry]) -> str:
    """How to have only the data read, for a message."""
    suffix = next((suffix for suffix in SUFFIXES if all(file.path.endswith(suffix) for file in data)), None)
    pattern = f"name the data by a pattern such as **/*{suffix} to exclude such files"
    return pattern if data and suffix else "remove such files, or name the files to read"


def summaries(others: Iterable[tuple[Entry, str]]) -> list[tuple[str, str]]:
    """The first path of each kind with its reason, and the number of files of the kind in the reason."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for file, reason in others:
        kinds.setdefault((_kind(file), reason), []).append(file.path)
    return [
        (min(paths), f"{f'{len(paths):,} files of such a name are ' if paths[1:] else ''}{reason}")
        for (_, reason), paths in kinds.items()
    ]


def _kind(file: Entry) -> str:
    """The name of a file with its numbers replaced."""
    return _NUMBERS.sub("#", posixpath.basename(file.path))


def _sample(files: Sequence[Entry]) -> list[Entry]:
    """Up to `OPENED` files, evenly spaced, from the last one by path."""
    step = max(1, -(-len(files) // OPENED))
    return sorted(files, key=lambda file: file.path, reverse=True)[::step]


def _is_parquet(file: Entry, filesystem: Any) -> bool:
    """Whether a file begins like Parquet, or cannot be read: its reader reports why."""
    try:
        with filesystem.open_input_file(file.path) as handle:
            return exactly(handle, 0, min(4, handle.size())).to_pybytes() in _MAGIC
    except READ_ERRORS:
        return True
