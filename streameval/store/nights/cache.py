"""The cache of results: a Delta table with the results that a store has computed, which other tools can read too.

Every row has a *key*, the hash of everything that its result depends on: contents of state files, options, metrics. So
a row is never outdated, only no longer needed. Rows that the current version of the ledger does not need are dropped;
missing ones are computed from the states, so that losing the table only costs time. If new nights come after all others
and the table belongs to the previous version, no row has to be dropped: new rows are appended without reading the
others.

The rows are in published files, which are verified when they are read; damaged rows are computed again.

==================  ======================================================================================
``version``         version of the ledger at which the row was written
``span``            ``night``; ``cumulative``: all nights from the first on; ``evaluation``: any selection
``partition``       the night, the last of the nights, or the first and the last
``of``, ``metric``  as in results, with ``value``, ``lower``, ``upper``, …
==================  ======================================================================================

An evaluation also has one row of the metric `DROPPED` for each reason to leave out rows.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import FormatError, StoreError
from streameval.results import Scalar, from_arrow, result_schema, to_arrow
from streameval.scan import READ_ERRORS
from streameval.store.files.delta import (
    LOG,
    RowTable,
    data_files,
    open_table,
    read_commit,
    read_rows,
    reading,
)
from streameval.store.files.published import PublishedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.store.files.location import Location


DROPPED = "dropped"
FILES = 32  # maximum number of files in the table; beyond it they are rewritten as one

_OWN = {"version": pa.int64()} | dict.fromkeys(("span", "partition", "group", "key"), pa.string())
_SCHEMA = pa.schema([*_OWN.items(), *result_schema()])


def key_of(*facts: str) -> str:
    """The key of a result: a hash of the facts that it depends on.

    Examples
    --------
    >>> key_of("a.parquet", "roc_auc") == key_of("a.parquet", "roc_auc") != key_of("a.parquetroc_auc")
    True
    """
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


class ResultCache:
    """The cached results of a store.

    Parameters
    ----------
    location : Location
        Directory of the table.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._new: list[tuple[tuple[str, str, str, str], Scalar]] = []
        self._asked: set[str] = set()
        self._damaged = False

    @cached_property
    def _table(self) -> Any:
        """The table; None if there is none, or it cannot be read."""
        with suppress(StoreError):
            return open_table(self.location)
        return None

    @cached_property
    def _files(self) -> list[str]:
        """Names of the files of the table."""
        with suppress(StoreError), reading(self.location):
            return [] if self._table is None else data_files(self._table)
        self._damaged = True
        return []

    @cached_property
    def _rows(self) -> pa.Table:
        """The rows that can be read."""
        parts = [_SCHEMA.empty_table()]
        for name in self._files:
            try:
                parts.append(read_rows(self.location, [name], _SCHEMA))
            except (FormatError, *READ_ERRORS):
                self._damaged = True
        return pa.concat_tables(parts)

    def appendable(self, version: int) -> bool:
        """Whether rows can be appended: the table is intact, not full, and was last written at this version."""
        if len(self._files) >= FILES or self._table is None or self._damaged:
            return False
        with suppress(StoreError), reading(self.location):
            columns = [field.name for field in self._table.schema().fields]
            newest = read_commit(self.location, self._table.version())
            return columns == _SCHEMA.names and newest is not None and newest.facts.get("action") == _action(version)
        return False

    def find(self, keys: Iterable[str], metric: str | None = None) -> dict[str, list[Scalar]]:
        """Cached results by key, optionally only those of one metric; missing keys are absent."""
        due, found = set(keys), dict[str, list[Scalar]]()
        self._asked |= due
        rows = self._rows.filter(pc.is_in(self._rows["key"], pa.array(due, pa.string())))
        stored = zip(rows["key"].to_pylist(), from_arrow(rows), strict=True)
        for key, result in [*stored, *((key, result) for (*_, key), result in self._new if key in due)]:
            if metric in (None, result.metric):
                found.setdefault(key, []).append(result)
        return found

    def add(self, span: str, partition: str, group: str, key: str, results: Sequence[Scalar]) -> None:
        """Collect new results for `write` or `append`."""
        self._new += [((span, partition, group, key), result) for result in results]

    def write(self, version: int, due: set[str]) -> None:
        """Write the new rows and keep those whose key is in `due` or was requested, and evaluations of this version.

        All other rows are dropped.
        """
        rows, new = self._rows, [key for (*_, key), _ in self._new]
        wanted = pc.is_in(rows["key"], pa.array((due | self._asked).difference(new), pa.string()))
        evaluations = pc.and_(pc.equal(rows["span"], "evaluation"), pc.equal(rows["version"], version))
        kept = rows.filter(pc.or_(wanted, evaluations))
        if new or self._damaged or self._table is None or kept.num_rows < rows.num_rows:
            self._commit(version, kept, None)

    @property
    def current(self) -> bool:
        """Whether the table is intact and holds all computed results."""
        return not (self._new or self._damaged or self._table is None)

    def append(self, version: int) -> None:
        """Append the new rows to the table."""
        self._commit(version, _SCHEMA.empty_table(), self._table)

    def vacuum(self, oldest: float) -> None:
        """Delete unreferenced files that were last modified at `oldest` (seconds since 1970) or earlier.

        Should another process be about to commit one of them, its rows are computed again.
        """
        files = PublishedFiles(self.location)
        listed = files.unneeded((), oldest)  # before the table is read: files that are committed meanwhile are kept
        if self._files:
            files.delete(listed.keys() - self._files)

    def _commit(self, version: int, kept: pa.Table, base: Any) -> None:
        """Commit the new rows and the kept ones; a failure is ignored, because results can be computed again."""
        results = to_arrow(result for _, result in self._new)
        for i, name in enumerate(("span", "partition", "group", "key")):
            results = results.add_column(i, name, pa.array([facts[i] for facts, _ in self._new], pa.string()))
        rows = pa.concat_tables([kept.drop_columns(["version"]), results])
        rows = rows.add_column(0, "version", pa.array([version] * rows.num_rows, pa.int64()))
        with suppress(StoreError):
            table = RowTable(self.location, _SCHEMA)
            added = table.publish(rows)
            if self._unreadable():  # a damaged log would be in the way for ever: begin another
                base, log = None, self.location.child(LOG)
                with suppress(*READ_ERRORS):
                    log.filesystem.delete_dir(log.path)
            table.commit(base, added, {"action": _action(version)}, anew=base is None)

    def _unreadable(self) -> bool:
        """Whether the table cannot be opened; another process may have written it, or the disk may be full, instead."""
        try:
            open_table(self.location)
        except StoreError:
            return True
        return False


def _action(version: int) -> str:
    """The description of a commit, which records the version of the ledger."""
    return f"version {version}"
