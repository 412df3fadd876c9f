"""Cluster: the same run on the workers of a `distributed.Client`.

`streameval.engine.threads` folds and merges on threads; here the same tasks are nodes of graphs that Dask's scheduler
places. The engine is Dask's: which worker runs what, what is stolen, spilled, or computed again after a worker died is
its business. A run is three graphs with the client in between, because ranges are cut where the data are:

::

    fold-i ─► outline-i ─► merged outlines ─► client: totals, and where to cut
      │
      └─► split-i-r ─► merge-r ─► finalize-r ─► client: results from partials
                          │
                          └─► kept while the evaluation lives, for its curves

Large keyed states never come to the client, and no worker holds a whole one: of a state every worker has its folds
first and some of its ranges then (`streameval.states.keyed.ranges`). Results have the same bits as on threads, since
states are: whatever the number of workers, and whichever of them died.

- ``connection``: finding a client, checking its workers, its errors in our words;
- ``work``: what runs on workers;
- ``exchange``: folds to ranges;
- ``tables``: the second exchange, of contingency tables;
- ``engine``: the three graphs;
- ``mapped``: many small runs, each whole on a worker, such as the nights of a store.
"""

from streameval.engine.cluster.connection import connect
from streameval.engine.cluster.engine import ClusterEngine
from streameval.engine.cluster.mapped import mapped

__all__ = ["ClusterEngine", "connect", "mapped"]
