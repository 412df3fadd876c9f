"""Evaluate partitions on a worker of a Dask client instead of in this process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.store.nights.merge import evaluated, states_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.result import Evaluation
    from streameval.store.files.compaction import Compaction
    from streameval.store.files.entries import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.fold import Workers


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

    Only results are returned; curves read the states in this process on demand. Incremental merges (`merge`) are
    evaluated in this process.
    """
    if merge is not None:
        return evaluated(entries, configuration, engine, files, only=only, merge=merge, **changes)
    one = partial(_one, configuration=configuration, files=files, options={"only": only, **changes})
    found: Evaluation = on_worker(workers, one, entries)
    states: Any = states_of(entries, configuration, engine, files, **changes)
    return replace(
        found, _states=states, _engine=engine, _threshold=configuration.request(**changes).options["aul_threshold"]
    )


def on_worker(workers: Workers, function: Callable[[Any, Engine], Any], item: Any) -> Any:
    """Call ``function(item, engine)`` on one worker, with an engine of that worker."""
    from streameval.engine.cluster import mapped  # imported here because it is slow

    run = {"memory": max(1, workers.memory), "spill": workers.spill, "threads": workers.connection.width}
    return mapped(workers.connection, function, [((), item)], "evaluate", lambda _: None, **run)[0]


def _one(
    entries: Sequence[Entry], engine: Engine, configuration: Configuration, files: Compaction, options: dict[str, Any]
) -> Evaluation:
    """The evaluation that runs on the worker."""
    return evaluated(entries, configuration, engine, files, **options)
