"""The same run on the workers of a `distributed.Client`.

The tasks of `streameval.engine.threads` become nodes of graphs that Dask's scheduler places. Dask decides which worker
runs a task, what is stolen or spilled, and what is recomputed after a worker died. A run is three graphs; between them
the client cuts ranges where the data are:

::

    fold-i ─► outline-i ─► merged outlines ─► client: totals, and where to cut
      │
      └─► split-i-r ─► merge-r ─► finalize-r ─► client: results from partials
                          │
                          └─► kept while the evaluation lives, for its curves

Large keyed states never come to the client, and no worker holds a whole one: a worker holds the fold tasks' rows first
and some of the ranges later (`streameval.states.keyed.ranges`). Results are bit-identical to those of threads, whatever
the number of workers and whichever of them died.

**Input.** Paths must mean the same to every worker, which is checked first. A table in memory travels with the tasks;
a reader cannot. A Dask DataFrame or delayed tables are computed by the tasks that fold them. Credentials of object
storage come from the environment of the workers. The client plans, so it must see the data too: it reads every footer,
but for objects below 64 MiB a single footer and the sizes of the listing.

**Failures.** Dask recomputes the tasks of a worker that died, with the same bits. A task that cannot read is tried
three times; then it is an error, or its files are tried one by one and skipped (`on_error="skip"`).

**Worker settings.** States of all fold tasks on a worker may use 15 % of its `memory_limit` (`memory` sets another
budget than a quarter of the limit); beyond that they spill to an unlinked file in `spill` or ``$TMPDIR``. What tasks
have finished is outside the budget: Dask holds it, and spills it by the worker's own limit. If `memory` is too low for
it, a warning comes before the run. A range is at most a quarter of the limit a thread, and Dask may spill it: leave
``distributed.worker.memory.spill`` and ``target`` on if states exceed the memory of all workers, and put Dask's
``temporary-directory`` on a large disk. Dask's nanny sets ``MALLOC_TRIM_THRESHOLD_=65536``, which returns freed memory
at once; where fresh memory is slow to touch, as on many virtual machines, keep it instead
(``distributed.nanny.pre-spawn-environ``: ``MALLOC_MMAP_MAX_=0``, ``MALLOC_TRIM_THRESHOLD_=68719476736``,
``MALLOC_ARENA_MAX=1``). Leave ``distributed.comm.compression`` off.

**Tasks.** A run has four fold tasks a thread, more if their states would be too large, but at most 20 a gigabyte and
none below a million rows. Between F fold tasks and R ranges there are F·R splits; beyond 10⁵ tasks the exchange takes
two levels and the fold tasks become fewer. ``explain`` (``--plan``) counts them.

- ``connection``: finds a client, checks its workers, translates its errors;
- ``work``: the functions that run on workers;
- ``folds``: the first graph, with retries;
- ``exchange``: fold tasks' rows to ranges;
- ``tables``: the passes over contingency tables;
- ``engine``: the three graphs;
- ``mapped``: many small runs, each on a single worker, such as the nights of a store.
"""

from streameval.engine.cluster.connection import connect
from streameval.engine.cluster.engine import ClusterEngine
from streameval.engine.cluster.mapped import mapped

__all__ = ["ClusterEngine", "connect", "mapped"]
