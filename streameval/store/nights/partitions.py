"""Partitions: find them in the data, compare them with the ledger, select and sort them.

A partition is a leaf directory of a Hive tree (``night=2026-01-15``), or a file if there is no tree. Its name is the
path relative to the root of the tree, even if only one night of the tree is given. Its fingerprint is a hash of the
names, sizes and modification times of its files. In a bucket these come from a listing: `pyarrow.fs.FileInfo` has no
ETag, and fetching it would cost one request per file. The server sets the modification time, so only a second write of
the same size within the resolution of its clock goes unnoticed; ``verify`` detects even that. Where a table identifies
its columns by ids or by names in its files, the fingerprint also has what identifies each column that is read.

``night=2026-01-15/hour=3`` has the keys night and hour; a plain file name has none.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streameval.errors import DataError, MissingInputError, OptionError
from streameval.kinds import whole
from streameval.scan import File, details, locate_all, natural
from streameval.scan.faults import unreadable
from streameval.wording import few, hint, unescape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from streameval.scan.files.tables import Tables
    from streameval.store.files.entries import Entry


_DATE = re.compile(r"(?<!\d)(\d{4})[-_/.]?(\d{1,2})(?:[-_/.]?(\d{1,2}))?(?!\d)")


@dataclass(frozen=True)
class Partition:
    """A partition of the data.

    Attributes
    ----------
    name : path relative to the root
    root : path of the root, with its scheme
    files : the files, sorted
    fingerprint : see the module docstring
    bytes : total size of the files
    """

    name: str
    root: str
    files: tuple[File, ...]
    fingerprint: str
    bytes: int

    @property
    def of_table(self) -> bool:
        """Whether it belongs to a Delta or Iceberg table."""
        return bool(self.files[0].table)


@dataclass(frozen=True)
class Changes:
    """Differences between the data and the ledger.

    Attributes
    ----------
    new, changed, unchanged : partitions of the data
    gone : names of partitions in the store that no longer exist under the given roots
    """

    new: tuple[Partition, ...]
    changed: tuple[Partition, ...]
    unchanged: tuple[Partition, ...]
    gone: tuple[str, ...]


def discover(
    data: object, roots: Iterable[str] = (), tables: Tables | None = None, columns: Collection[str] = ()
) -> list[Partition]:
    """Find the partitions of paths, patterns or URIs.

    Parameters
    ----------
    data : str, path, or sequence of those
    roots : iterable of str
        Known roots; a file below one of them is named relative to it.
    tables : Tables, optional
        Version and snapshot of the tables among the data, by default the current ones; receives their histories.
    columns : collection of str
        The columns to read.

    Returns
    -------
    list of Partition
        Sorted by name, see `natural`.

    Raises
    ------
    OptionError
        If the data are not paths.
    MissingInputError
        If there are no files.
    DataError
        If two directories hold a partition of the same name, or a file is named twice.
    """
    named = [data] if isinstance(data, str | os.PathLike) else data
    if not isinstance(named, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in named):
        kinds = "paths, patterns, URIs or catalog://name/namespace.table"
        raise OptionError(f"a store folds files: name {kinds}, not a {type(data).__name__}")
    return group_files(locate_all(map(os.fspath, named), tables), roots, columns)


def group_files(located: Iterable[File], roots: Iterable[str] = (), columns: Collection[str] = ()) -> list[Partition]:
    """The partitions of some files; see `discover`."""
    files = {(_with_scheme(file, file.path), file.name): file for file in located}
    by_name: dict[str, list[File]] = {}
    for (path, _), file in sorted(files.items(), key=lambda pair: pair[0]):
        root = max((root for root in roots if path.startswith(root.rstrip("/") + "/")), key=len, default=None)
        rooted = file if root is None else replace(file, root=root.partition("://")[2] if "://" in root else root)
        by_name.setdefault(rooted.table or rooted.partition, []).append(rooted)
    partitions = []
    for name, own in by_name.items():
        roots_of_name = sorted({_with_scheme(file, file.root) for file in own})
        if len(roots_of_name) > 1:
            raise DataError(
                f"{name}: in {roots_of_name[0]} and in {roots_of_name[1]}; names of partitions are unique in a store: "
                "rename one"
            )
        if len({file.path for file in own}) < len(own):
            raise DataError(f"{own[0].name}: named more than once; name inputs that do not overlap")
        times = ((file.size, 0 if file.table else file.mtime) for file in own)
        listed = [(size, time) for size, time in times if size is not None and time is not None]
        facts = fingerprint(own, listed if len(listed) == len(own) else None, columns)
        partitions.append(Partition(name, roots_of_name[0], tuple(own), *facts))
    return sorted(partitions, key=lambda partition: natural(partition.name))


def _with_scheme(file: File, path: str) -> str:
    """A path with the scheme of its file system, if it is not local."""
    kind = file.filesystem.type_name
    return path if kind == "local" else f"{kind}://{path}"


def fingerprint(
    files: Sequence[File], sizes: Sequence[tuple[int, int]] | None = None, columns: Collection[str] = ()
) -> tuple[str, int]:
    """Hash of the names, sizes and modification times of files, and the total size; by default the current ones.

    Files of a table have no times, because they are never overwritten, and its metadata have none. A hash of each
    column and of what identifies it in the files follows where a table has names of its own.

    Raises
    ------
    DataError
        If a file no longer exists, or its name is not UTF-8.
    """
    sizes = details(files) if sizes is None else sizes
    lines = list[bytes]()
    for file, (size, time) in zip(files, sizes, strict=True):
        try:
            time = 0 if file.table else time
            lines.append(f"{file.origin}\t{size}\t{time}{file.deleted.hex()}".encode())
        except UnicodeEncodeError as error:
            raise unreadable(file.name, error) from error
    names = {id(file.names): file.names for file in files if file.names is not None}.values()
    marks = [_digest(name) + _digest(str(sorted(one.identity(name) for one in names))) for name in columns if names]
    return " ".join((hashlib.sha256(b"\n".join(lines)).hexdigest()[:32], *marks)), sum(size for size, _ in sizes)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def is_same(one: str, other: str) -> bool:
    """Whether two fingerprints are of the same files, and of the same columns as far as both have them."""
    return one.split()[0] == other.split()[0] and _has_same_columns(one, other)


def _has_same_columns(one: str, other: str) -> bool:
    marks = {mark[:8]: mark for mark in one.split()[1:]}
    return all(marks.get(mark[:8], mark) == mark for mark in other.split()[1:])


def compare_partitions(
    partitions: Sequence[Partition], entries: Mapping[str, Entry], data: Any, tables: Tables
) -> Changes:
    """Compare the data with the ledger.

    Raises
    ------
    DataError
        If a partition of the store is found with other files in another directory, or a table is partitioned by other
        keys than before.
    """
    new, changed, unchanged = list[Partition](), list[Partition](), list[Partition]()
    for partition in partitions:
        entry = entries.get(partition.name)
        if entry is None:
            new.append(partition)
        elif is_same(entry.fingerprint, partition.fingerprint):
            unchanged.append(partition)
        elif entry.root != partition.root:
            raise DataError(
                f"{partition.name}: the store has it from {entry.root}, and the files in {partition.root} have "
                "other names, sizes or times; "
                "if it is the same partition, use replace, else rename it"
            )
        else:
            changed.append(partition)
    if changed and tables.histories:
        rewritten = find_rewritten(changed, entries, tables)
        unchanged += [partition for partition in changed if partition.name in rewritten]
        changed = [partition for partition in changed if partition.name not in rewritten]
    items = [os.fspath(item) for item in ([data] if isinstance(data, str | os.PathLike) else data)]
    roots = {
        item.partition("?")[0].rstrip("/") if "://" in item else os.path.normpath(Path(item).absolute())
        for item in items
    }
    roots |= {partition.root for partition in partitions if partition.of_table}
    present = {partition.name for partition in partitions}
    _refuse_other_keys(partitions, entries)
    gone = tuple(name for name, entry in entries.items() if entry.root in roots and name not in present)
    return Changes(tuple(new), tuple(changed), tuple(unchanged), gone)


def find_rewritten(changed: Sequence[Partition], entries: Mapping[str, Entry], tables: Tables) -> set[str]:
    """The names of the partitions whose rows were only written to other files since they were folded.

    The versions of their tables are compared from the current one back, until a version has the files that were folded.
    A partition that was folded from other columns than the current ones is none of them.
    """
    rewritten = set[str]()
    same = {part.name for part in changed if _has_same_columns(entries[part.name].fingerprint, part.fingerprint)}
    for history in tables.histories:
        pending, later = same - rewritten, dict[str, str]()
        with suppress(DataError):  # versions that can no longer be read
            for rewrites, files in history:
                prints = {partition.name: partition.fingerprint for partition in group_files(files)}
                pending = {name for name in pending if prints.get(name) == later.get(name, prints.get(name))}
                pending &= prints.keys()
                rewritten |= {name for name in pending if prints[name] == entries[name].fingerprint.split()[0]}
                pending -= rewritten
                if not pending:
                    break
                later = {} if rewrites else prints
    return rewritten


def _refuse_other_keys(partitions: Sequence[Partition], entries: Mapping[str, Entry]) -> None:
    """Raise `DataError` if the partitions of a table have several sets of keys: rows would be counted in two."""
    for root in {partition.root for partition in partitions if partition.of_table}:
        names = [partition.name for partition in partitions if partition.root == root]
        names += [name for name, entry in entries.items() if entry.root == root]
        keys = {tuple(keys_of(name)): name for name in names}
        if len(keys) > 1:
            one, other = list(keys.values())[:2]
            raise DataError(
                f"{root}: has the partitions {one} and {other}, of different keys; rewrite the data files of the table "
                "with one partition spec, and fold them into a new store"
            )


def span(names: Sequence[str]) -> str:
    """The first and the last of sorted names, in words."""
    return f"{names[0]} to {names[-1]}" if names else "no partitions"


def suggest_names(name: str, names: Iterable[str]) -> str:
    """A question that suggests names with the same date or numbers; empty if there are none.

    Examples
    --------
    >>> names = ["night=2026-01-07", "night=2026-01-08"]
    >>> suggest_names("2026-01-08", names), suggest_names("night=2026-1-8", names)
    ('did you mean night=2026-01-08?', 'did you mean night=2026-01-08?')
    """
    dated, same = date_of(name), natural(name)
    near = [other for other in names if natural(other) == same or (dated and date_of(other) == dated)]
    return f"did you mean {few(near)}?" if near else ""


def date_of(text: str) -> tuple[int, ...]:
    """The date in a partition's name or an argument: (year, month), or (year, month, day); empty without a date.

    If several keys have a date, such as that of a model, the date of the key ``night`` counts; without such a key, it
    is unknown which of them is meant, and the name has no date.

    Examples
    --------
    >>> date_of("region=3/night=2026-01-15"), date_of("year=2026/month=1/day=5"), date_of("2026-01")
    ((2026, 1, 15), (2026, 1, 5), (2026, 1))
    >>> date_of("model=20251101/night=2026-01-15"), date_of("model=20251101/day=2026-01-15"), date_of("2026-01-32")
    ((2026, 1, 15), (), ())
    """
    keyed = _days(text)
    days = {when for key, when in keyed if key == "night"} or {when for _, when in keyed}
    if len(days) > 1:
        return ()
    return days.pop() if days else _first_date("/".join(part.rpartition("=")[2] for part in text.split("/")))


def date_problem(name: str) -> str:
    """Why the name of a partition has no `date_of`, for messages.

    Examples
    --------
    >>> date_problem("part-7"), date_problem("model=20251101/day=2026-01-15")
    ('no date', 'two dates (2025-11-01 and 2026-01-15; call the key of its day night)')
    """
    days = sorted({date(*when).isoformat() for _, when in _days(name)})
    return f"two dates ({days[0]} and {days[1]}; call the key of its day night)" if days[1:] else "no date"


def _days(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """The dates with a day in the parts of a path, each with the key of its part."""
    parts = (part.rpartition("=") for part in text.split("/"))
    dates = ((key, _first_date(value)) for key, _, value in parts)
    return [(key, when) for key, when in dates if len(when) > len(("year", "month"))]


def day_of(name: str, why: str) -> date:
    """The day in the name of a partition; raises `OptionError`, which ends with `why`, if it has none."""
    when = date_of(name)
    if len(when) < len(("year", "month", "day")):
        raise OptionError(f"{name}: the name of this partition has {date_problem(name)}{why}")
    return date(*when)


def _first_date(text: str) -> tuple[int, ...]:
    """The first date or month in a text; empty if there is none."""
    for match in _DATE.finditer(text):
        parts = tuple(int(part) for part in match.groups() if part)
        with suppress(ValueError):
            date(*(*parts, 1)[:3])
            return parts
    return ()


def select_entries(
    entries: Mapping[str, Entry],
    *,
    partition: Sequence[str] = (),
    since: str | date | None = None,
    until: str | date | None = None,
    last: int | None = None,
) -> list[Entry]:
    """Select entries, in order: by name, between two dates (both included), and the last few of these.

    Raises
    ------
    MissingInputError
        If no entry is selected, or a name is unknown.
    OptionError
        If an argument is not a date, or the name of a partition has none.
    """
    since, until = (None if value is None else str(value) for value in (since, until))
    ordered = sorted(entries, key=natural)
    extent = span(ordered)
    absent = [name for name in partition if name not in entries]
    if absent:
        raise MissingInputError(
            f"{absent[0]}: no such partition; {suggest_names(absent[0], ordered) or f'the store has {extent}'}"
        )
    names = [name for name in ordered if not partition or name in partition]
    check_dates(since=since, until=until)
    if since or until:
        names = [name for name in names if is_between(name, since, until)]
    names = names if last is None else names[-whole("last", last, "a whole number of at least 1", 1) :]
    if not names:
        raise MissingInputError(
            f"no partition has a date in this range; the store has {extent}" if ordered else f"the store has {extent}"
        )
    return [entries[name] for name in names]


def check_dates(**ends: str | None) -> None:
    """Raise `OptionError` if an end of a range, by the name of its option, is no date; None is none."""
    for option, text in ends.items():
        if text is not None and not date_of(text):
            raise OptionError(f"{option}={text!r} must be a date such as 2026-01-08", option)


def is_between(name: str, since: str | None, until: str | None) -> bool:
    """Whether the date in a name is within a range, ends included; a month as `until` includes all its days.

    Raises
    ------
    OptionError
        If the name has no date.
    """
    when = date_of(name)
    if not when:
        raise OptionError(
            f"{name}: the name of this partition has {date_problem(name)}; select it with partition= (--partition)"
        )
    first, last = date_of(since or "") or (0,), date_of(until or "") or (9999,)
    return first <= when and when[: len(last)] <= last


def keys_of(partition: str) -> dict[str, str]:
    """The keys in the name of a partition.

    Examples
    --------
    >>> keys_of("region=eu/night=2026-01-15"), keys_of("20260115.parquet")
    ({'region': 'eu', 'night': '2026-01-15'}, {})
    """
    parts = (part.partition("=") for part in partition.split("/"))
    return {name: unescape(value) for name, equals, value in parts if equals}


def group_by_keys(
    entries: Sequence[Entry], names: str, sliced: Sequence[str], remedy: str
) -> list[tuple[dict[str, str], list[Entry]]]:
    """Group partitions by the values of keys; returns pairs (values, partitions) in order of first occurrence.

    Parameters
    ----------
    entries : the partitions, in order
    names : keys, separated by commas; a partition without a key ``night`` has its name as ``night``
    sliced, remedy : the slicings that the store keeps, and how to get more, for the message

    Raises
    ------
    OptionError
        If a partition has no such key.
    """
    groups: dict[tuple[str, ...], list[Entry]] = {}
    keys = [name.strip() for name in names.split(",")]
    for entry in entries:
        own = keys_of(entry.partition)
        have = ", ".join(own) or "none"
        own.setdefault("night", entry.partition)
        absent = [name for name in keys if name not in own]
        if absent:
            stored = f"the store keeps slices by {'; '.join(sliced)}" if sliced else "the store keeps no slices"
            raise OptionError(
                f"by={names!r}: the name of {entry.partition} has no key {absent[0]!r}; its keys: {have}; {stored}; "
                f"{hint(names, sliced)}{remedy}"
            )
        groups.setdefault(tuple(own[name] for name in keys), []).append(entry)
    return [(dict(zip(keys, values, strict=True)), group) for values, group in groups.items()]
