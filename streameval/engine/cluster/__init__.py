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
