"""`Store`: fold each night once, keep its states, and evaluate any set of nights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.engine import check_timeout
from streameval.store.changing import Changing
from streameval.store.context import StoreContext
from streameval.store.evaluating import Evaluating
from streameval.store.files.location import Location
from streameval.store.info import Info, info
from streameval.store.judging import Judging
from streameval.store.nights.partitions import select_entries

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from datetime import date

    from streameval.store.files.entries import Entry


class Store(Changing, Evaluating, Judging):
    """States of partitions that arrive over time, on a local disk or S3-compatible storage.

    An update is one commit: if it is killed at any moment, the store is in the state before or after it, and the update
    can be run again. One of two concurrent updates may be refused. A store keeps one Parquet file per night and column,
    verified whenever it is read: about 1.1 bytes per row for float32 scores, 5.1 for float64, 4.9 for 64-bit ids.
    `STORE/history` is a Delta table that DuckDB, Polars or Spark can read.

    Columns and policies are fixed by the first update. A night is identified by its directory (``night=2026-01-15``) or
    file name and counts until it is removed, even if its files are gone. Changes are detected by size and modification
    time; `update` with ``verify=True`` folds again and compares. Evaluation takes time proportional to what is stored;
    results are cached until the next update.

    Parameters
    ----------
    path : path or URI
        Directory of the store; the first `update` creates it.
    storage_options : mapping of str to str, optional
        Options of deltalake, such as ``AWS_ENDPOINT_URL``; see `streameval.store.files.location`.
    memory, spill, threads, progress
        As `streameval.evaluate`.
    client : distributed.Client or str, optional
        Fold partitions in parallel on the workers of this client, or of the scheduler at this address; `evaluate` and
        `check` run on one worker. By default the active client is used, if there is one and `threads` is not given;
        inside a Dask task there is none. Workers read and write the states, so the store must be on storage that they
        share with this process; `memory` and `spill` then apply to each worker.
    scheduler_timeout : float
        Seconds to wait for the scheduler, if `client` is an address, and then for a worker if none answers.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.TemporaryDirectory()
    >>> for night, scores in [("2026-01-14", [0.1, 0.4, 0.8]), ("2026-01-15", [0.2, 0.9, 0.3])]:
    ...     where = Path(folder.name, "data", f"night={night}")
    ...     where.mkdir(parents=True)
    ...     pq.write_table(pa.table({"label": [0, 0, 1], "score": scores}), where / "part-0.parquet")
    >>> store = Store(Path(folder.name, "store"))
    >>> print(store.update(Path(folder.name, "data"), score="score"))
    2 new (night=2026-01-14, night=2026-01-15)
    >>> store.evaluate(last=1).value("roc_auc"), store.evaluate().value("roc_auc")
    (0.5, 0.625)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        memory: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        client: Any = None,
        scheduler_timeout: float = 10.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        check_timeout(client, scheduler_timeout)
        run = {"memory": memory, "spill": spill, "threads": threads, "progress": progress}
        self._context = StoreContext(Location.of(path, storage_options), client, run, scheduler_timeout)

    def __repr__(self) -> str:
        return f"Store({self.name!r})"

    @property
    def name(self) -> str:
        """The path or URI of the store, without credentials and options."""
        return self._context.location.name

    def partitions(self, as_of: str | int | date | None = None) -> list[Entry]:
        """The partitions of the store in order, each with its rows and state files.

        Parameters
        ----------
        as_of : str, int or date, optional
            A version, date or time; by default the newest version.

        Raises
        ------
        OptionError
            If there was no such version.
        StoreError
            If the ledger cannot be read.
        """
        snapshot = self._context.ledger.read(as_of)
        return select_entries(snapshot.entries) if snapshot.entries else []

    def versions(self) -> list[dict[str, Any]]:
        """All versions of the ledger, newest first, as dicts: ``version``, ``when`` (UTC), and the ``action``."""
        return self._context.ledger.versions()

    def info(self, *, verify: bool = False) -> Info:
        """Describe the store: nights, columns, policies, incomplete and failing nights, and its size.

        Parameters
        ----------
        verify : bool
            Read every state file, and list the damaged ones, with the remedy.

        Raises
        ------
        StoreError
            If there is no store, or its ledger is damaged.
        """
        return info(self._context, verify=verify)

    def exists(self) -> bool:
        """Whether there is a store at its path; False if that cannot be determined."""
        return self._context.ledger.exists()
