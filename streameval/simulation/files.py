"""Nights of simulated messages as Parquet files: each night is one directory with one file, written by one task.

A file is written under a hidden name, which readers of datasets skip, and renamed when it is complete. If a run fails
or is interrupted, its tasks stop at their next row group, and everything that the run wrote is removed.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval.errors import OptionError, StreamevalError
from streameval.simulation.draw import BLOCK, COLUMNS, Block

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from streameval.simulation.model import Model

FIRST_NIGHT = date(2026, 1, 1)
FILE, UNFINISHED = "part-0.parquet", ".part-0.parquet.tmp"
ROW_GROUP = 8 * BLOCK

SCHEMA = pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in COLUMNS.items()])
# random words do not compress, so each column has its fastest encoding
ENCODING = {
    "compression": "snappy",
    "write_page_checksum": True,
    "use_dictionary": ["weight"],
    "column_encoding": dict.fromkeys(("message_id", "label", "campaign"), "DELTA_BINARY_PACKED"),
}


def prepare(out: Path, *, overwrite: bool) -> Path:
    """Create the output directory, or check that it is empty or holds an earlier simulation to replace.

    Returns
    -------
    Path
        The directory to write to: ``out``, or one next to it that replaces its contents when the data is complete.

    Raises
    ------
    OptionError
        If ``out`` is a file, if it is not empty and ``overwrite`` is false, or if it has a file that
        :func:`streameval.simulation.simulate` did not write. Nothing is removed in these cases.
    StreamevalError
        If a directory cannot be created or read.
    """
    try:
        if out.exists() and not out.is_dir():
            raise OptionError(f"out={str(out)!r} is a file; name a directory")
        out.mkdir(parents=True, exist_ok=True)
        nights = sorted(out.iterdir())
        if nights and not overwrite:
            raise OptionError(f"out={str(out)!r} is not empty; name another directory, or set overwrite=True")
        for night in nights:
            if not _is_night(night):
                raise OptionError(
                    f"out={str(out)!r} holds {night.name!r}, which simulate did not write; name another directory"
                )
        stage = out.with_name(f".{out.resolve().name}.new") if nights else out
        stage.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    return stage


def install(stage: Path, out: Path) -> None:
    """Replace an earlier simulation by the complete data."""
    if stage == out:
        return
    for night in out.iterdir():
        remove(night)
    for night in stage.iterdir():
        night.rename(out / night.name)
    stage.rmdir()


def _is_night(path: Path) -> bool:
    """Whether a path is the directory of a night that has only files that :meth:`Run.write` created."""
    if path.is_symlink() or not re.fullmatch(r"night=\d{4}-\d\d-\d\d", path.name) or not path.is_dir():
        return False
    return {entry.name for entry in path.iterdir()} <= {FILE, UNFINISHED}


def remove(night: Path) -> None:
    """Remove a night's files and its directory, if they exist."""
    for name in (FILE, UNFINISHED):
        (night / name).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        night.rmdir()


def cannot_write(path: Path, error: OSError) -> StreamevalError:
    """The one-line error for an operating system error that occurred while writing below ``path``."""
    reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
    return StreamevalError(f"cannot write {str(path)!r}: {reason}; free the disk, or name another out directory")


@dataclass(frozen=True)
class Run:
    """A simulation being written: night ``p`` has the rows ``[rows p / partitions, rows (p+1) / partitions)``.

    The semaphore ``at_work`` has one permit per thread: while one caller holds all permits, no task is writing.
    """

    model: Model
    out: Path
    partitions: int
    threads: int
    progress: Callable[[int], object] | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    at_work: threading.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """Create the semaphore."""
        object.__setattr__(self, "at_work", threading.Semaphore(self.threads))

    def night(self, partition: int) -> Path:
        """The directory of a night."""
        return self.out / f"night={FIRST_NIGHT + timedelta(days=partition)}"

    def write(self, partition: int) -> tuple[int, int]:
        """Write one night; this is a task of the graph.

        Parameters
        ----------
        partition : int
            Number of the night, in [0, partitions).

        Returns
        -------
        positives, bytes : int
            Number of messages labelled 1, and size of the file; zeros if the run has been stopped.
        """
        with self.at_work:
            if self.stopped.is_set():
                return 0, 0
            night = self.night(partition)
            night.mkdir()
            positives = self._write_groups(night / UNFINISHED, partition)
            if self.stopped.is_set():
                return 0, 0
            (night / UNFINISHED).replace(night / FILE)
            return positives, (night / FILE).stat().st_size

    def _write_groups(self, path: Path, partition: int) -> int:
        """Write the row groups of a night, until the run is stopped; returns the number of messages labelled 1."""
        rows, positives = self.model.rows, 0
        start, stop = rows * partition // self.partitions, rows * (partition + 1) // self.partitions
        block, group = Block(self.model), {name: np.empty(ROW_GROUP, dtype) for name, dtype in COLUMNS.items()}
        with pq.ParquetWriter(path, SCHEMA, **ENCODING) as writer:
            for first in range(start, stop, ROW_GROUP):
                if self.stopped.is_set():
                    break
                size = min(ROW_GROUP, stop - first)
                _fill(group, block, first, first + size)
                arrays = [pa.array(column[:size]) for column in group.values()]
                writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), row_group_size=ROW_GROUP)
                positives += int(np.count_nonzero(group["label"][:size]))
                if self.progress is not None:
                    self.progress(size)
        return positives

    def discard(self) -> None:
        """Stop all tasks, wait for those that are writing, and remove everything that the run has written."""
        self.stopped.set()
        for _ in range(self.threads):
            self.at_work.acquire()
        self.at_work.release(self.threads)  # queued tasks can start, and return at once because the run is stopped
        for partition in range(self.partitions):
            with suppress(OSError):
                remove(self.night(partition))
        if self.out.name.startswith(".") and self.out.name.endswith(".new"):
            with suppress(OSError):
                self.out.rmdir()


def _fill(group: dict[str, NDArray[np.generic]], block: Block, start: int, stop: int) -> None:
    """Copy rows ``[start, stop)`` to the start of a row group's columns, arrays of shape (n,) with n ≥ stop − start."""
    for number in range(start // BLOCK, (stop - 1) // BLOCK + 1):
        origin = number * BLOCK
        low, high = max(start, origin), min(stop, origin + BLOCK)
        for name, column in block.draw(number).items():
            group[name][low - start : high - start] = column[low - origin : high - origin]
