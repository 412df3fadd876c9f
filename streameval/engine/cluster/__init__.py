"""The engine on the workers of a `distributed.Client`.

The tasks of `streameval.engine.threads` become nodes of graphs for Dask's scheduler. Dask decides which worker runs a
task, what is stolen or spilled, and what is recomputed after a worker has died. A run consists of three graphs; between
them, the client chooses ranges according to the distribution of the data:

::

    fold-i ─► outline-i ─► merged outlines ─► client: totals, and the ranges
      │
      └─► split-i-r ─► merge-r ─► finalize-r ─► client: results from partials
                          │
                          └─► kept as long as the evaluation, for its curves

Large keyed states never come to the client, and no worker holds an entire state: a worker first holds the rows of its
fold tasks, and later some of the ranges (`streameval.states.keyed.ranges`). Results are bit-identical to those of
threads, for any number of workers and even if workers die.

**Input.** Paths must name the same data on every worker; a worker opens the first file to check this. A table in memory
is sent with the tasks; a reader cannot be sent. Partitions of a Dask DataFrame and delayed tables are computed by Dask
before the tasks that fold them. Credentials of object storage come from the environment of the workers. The client
plans the run, so it must have access to the data too: it reads every footer, but for objects up to 64 MiB only a single
footer and the sizes in the listing.

**Failures.** Dask recomputes the tasks of a worker that died, with the same bits. A task that cannot read a file is
tried three times. After that the run fails, or, with `on_error="skip"`, the files of the task are tried one by one, and
those that cannot be read are skipped.

**Worker settings.** A worker's states may use 15 % of its `memory_limit`: 60 % of the budget, which is a quarter of the
limit unless `memory` sets another. Beyond that, states spill to an unlinked file in `spill` or ``$TMPDIR``. The results
of finished tasks are outside the budget: Dask holds them, and spills them by the worker's own limit. If `memory` is too
low for them, a warning is logged before the run. A range takes at most a quarter of the limit divided by the threads of
a worker, and Dask may spill it: leave ``distributed.worker.memory.spill`` and ``target`` enabled if states exceed the
memory of all workers, and put Dask's ``temporary-directory`` on a large disk. Dask's nanny sets
``MALLOC_TRIM_THRESHOLD_=65536``, which returns freed memory at once. Where touching fresh memory is slow, as on many
virtual machines, keep freed memory instead (``distributed.nanny.pre-spawn-environ``: ``MALLOC_MMAP_MAX_=0``,
``MALLOC_TRIM_THRESHOLD_=68719476736``, ``MALLOC_ARENA_MAX=1``). Leave ``distributed.comm.compression`` disabled.

**Tasks.** A run has four fold tasks per thread. It has more if their states would be too large, but at most 20 per
gigabyte, and no task has fewer than about a million rows. Between F fold tasks and R ranges there are F·R split tasks;
beyond 10⁵ tasks, the exchange takes two levels, and there are fewer fold tasks. ``explain`` (``--plan``) counts them.

- ``connection`` finds a client, checks its workers and translates its errors;
- ``work`` has the functions that run on workers;
- ``folds`` runs the first graph, with retries, and moves rows from fold tasks to ranges; `mapped` makes many small
  runs, each on a single worker, such as the nights of a store;
- ``tables`` has the passes over contingency tables;
- ``engine`` has the three graphs.
"""

from streameval.engine.cluster.connection import connect
from streameval.engine.cluster.engine import ClusterEngine
from streameval.engine.cluster.folds import mapped

__all__ = ["ClusterEngine", "connect", "mapped"]
