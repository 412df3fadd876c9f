"""Partitions evaluated on a worker of a Dask client instead of in this process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.engine.threads import ThreadEngine
from streameval.store.nights.merge import evaluated, states_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.evaluation.result import Evaluation
    from streameval.store.files.compaction import Compaction
    from streameval.store.files.ledger import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.fold import Workers

__all__ = ["evaluated_on_worker"]


def evaluated_on_worker(
    workers: Workers,
    entries: Sequence[Entry],
    configuration: Configuration,
    engine: Engine,
    files: Any,
    *,
    only: tuple[str, str] | None = None,
    merge: Any = None,
    **changes: Any,
) -> Evaluation:
    """`streameval.store.nights.merge.evaluated` on one worker, which reads the states from the store.

    The results come back; curves read the states here when they are drawn. Nights that are merged one after the other
    (`merge`) are evaluated here.
    """
    if merge is not None:
        return evaluated(entries, configuration, engine, files, only=only, merge=merge, **changes)
    from streameval.engine.cluster import mapped  # importing a cluster takes long

    run = {"memory": max(1, workers.memory), "spill": workers.spill, "threads": workers.connection.width}
    one = partial(_one, configuration=configuration, files=files, run=run, options={"only": only, **changes})
    found: Evaluation = mapped(workers.connection, one, [((), entries)], "evaluate", lambda _: None)[0]
    states: Any = states_of(entries, configuration, engine, files, **changes)
    return replace(
        found, _states=states, _engine=engine, _threshold=configuration.request(**changes).options["aul_threshold"]
    )


def _one(
    entries: Sequence[Entry],
    configuration: Configuration,
    files: Compaction,
    run: dict[str, Any],
    options: dict[str, Any],
) -> Evaluation:
    """What the worker does."""
    return evaluated(entries, configuration, ThreadEngine.start(**run), files, **options)
