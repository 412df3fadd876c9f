"""Workers: partitions folded on the workers of a Dask client, side by side.

Every partition is one task: the worker folds it with an engine of its own, writes its state files to the place of the
store, which all must see, and gives back what the ledger will say of it. The commit is the client's. State files are
named by their content, so a task that runs twice, because a worker died, writes the same files again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.budget import parse_bytes
from streameval.engine.threads import ThreadEngine
from streameval.errors import ClusterError
from streameval.store.nights.night import fold_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine.cluster.connection import Connection
    from streameval.scan import Scan
    from streameval.store.files.states import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.night import Night
    from streameval.store.nights.partitions import Partition

__all__ = ["Workers"]


@dataclass(frozen=True)
class Workers:
    """The workers of a client.

    Attributes
    ----------
    connection : Connection
    memory : bytes that a worker gives to the partitions it folds
    spill : directory of its machine for what exceeds them
    """

    connection: Connection
    memory: int
    spill: Any

    @classmethod
    def of(cls, client: Any, threads: int | None, memory: int | str | None, spill: Any) -> Workers | None:
        """The workers of a client, of a scheduler's address, or of the active client; None to fold here.

        Raises
        ------
        OptionError, ClusterError
            As `streameval.engine.cluster.connect`.
        """
        if client is None and (threads is not None or "distributed" not in sys.modules):
            return None
        from streameval.engine.cluster import connect  # here, because a cluster takes long to import

        connection = connect(client, threads)
        if connection is None:
            return None
        limit = connection.memory // 4 if memory is None else parse_bytes(memory)
        return cls(connection, limit, None if spill is None else str(spill))

    def fold(
        self,
        planned: Sequence[tuple[Partition, Scan]],
        configuration: Configuration,
        files: StateFiles,
        progress: Callable[[int], None],
    ) -> list[Night]:
        """Fold partitions and write their states; few partitions use several threads of a worker each.

        Raises
        ------
        ClusterError
            If the workers write where this process does not look.
        """
        from streameval.engine.cluster import mapped

        count, width = len(planned), self.connection.width
        at_once = min(width, -(-count // self.connection.workers))
        threads = min(width, max(1, self.connection.threads // count))
        engine = {"memory": max(1, self.memory // at_once), "spill": self.spill, "threads": threads}
        one = partial(_folded, configuration=configuration, files=files, engine=engine)
        items = [(found.pieces, (partition, found)) for partition, found in planned]
        nights: list[Night] = mapped(self.connection, one, items, "partition", progress)
        absent = files.absent([kept.file for night in nights for kept in night.entry.states])
        if absent:
            msg = (
                f"{files.place.name}: what the workers wrote is not there ({absent[0]}); a store on a cluster must be "
                "in a place that all workers and this process share"
            )
            raise ClusterError(msg)
        return nights


def _folded(
    planned: tuple[Partition, Scan], configuration: Configuration, files: StateFiles, engine: dict[str, Any]
) -> Night:
    """What a worker does with a partition."""
    return fold_partition(*planned, configuration, ThreadEngine.start(**engine), files)
