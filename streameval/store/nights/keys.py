"""Keys of partitions: ``night=2026-01-15/hour=3`` has the keys night and hour; a plain file name has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.wording import unescaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.store.files.entries import Entry


def keys_of(partition: str) -> dict[str, str]:
    """The keys in the name of a partition.

    Examples
    --------
    >>> keys_of("region=eu/night=2026-01-15"), keys_of("20260115.parquet")
    ({'region': 'eu', 'night': '2026-01-15'}, {})
    """
    parts = (part.partition("=") for part in partition.split("/"))
    return {name: unescaped(value) for name, equals, value in parts if equals}


def by_keys(entries: Sequence[Entry], names: str) -> list[tuple[dict[str, str], list[Entry]]]:
    """Group partitions by the values of keys; returns pairs (values, partitions) in order of first occurrence.

    Parameters
    ----------
    entries : the partitions, in order
    names : keys, separated by commas; a partition without a key ``night`` has its name as ``night``

    Raises
    ------
    OptionError
        If a partition has no such key.
    """
    found: dict[tuple[str, ...], list[Entry]] = {}
    keys = [name.strip() for name in names.split(",")]
    for entry in entries:
        own = keys_of(entry.partition)
        own.setdefault("night", entry.partition)
        absent = [name for name in keys if name not in own]
        if absent:
            have = ", ".join(keys_of(entry.partition)) or "none"
            msg = f"by={names!r}: the name of {entry.partition} has no key {absent[0]!r}; its keys: {have}"
            raise OptionError(msg, "by")
        found.setdefault(tuple(own[name] for name in keys), []).append(entry)
    return [(dict(zip(keys, values, strict=True)), group) for values, group in found.items()]
