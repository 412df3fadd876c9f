"""The store: nightly partitions, folded once, evaluated together at any time.

::

    STORE/
      ledger/    a Delta table: which partitions count, with which state files; the only truth
      states/    one immutable Parquet file a partition and state, named by the hash of its bytes
      history/   a Delta table: every metric, night by night; derived
      merged/    states of old nights merged into larger files; derived
      results/   evaluations that are kept until the ledger changes; derived

An update folds the partitions that are new or changed, writes their states, and then makes them count with one commit
of the ledger. Killed before the commit, it leaves files that nothing names, and the store as it was; killed after, the
store is as it will be. To run it again is harmless: what counts already is known by its fingerprint.

The modules, from the bottom: ``place`` (where a store is), ``files`` (states in files), ``delta`` (small tables),
``ledger``, ``partitions`` (what is new in the data), ``configuration`` (what is kept of them), ``folding`` and
``workers`` (partitions to states, here or on a cluster), ``runs`` (nights merged), ``merging`` (states to results),
``history``, ``nightly`` and ``remembered`` (results that are kept), ``opened`` (all of these, of one store); and the
verbs: ``updating`` with ``joining``, ``looking`` with ``rules``, ``vacuum``, all of them in ``store``.
"""

from streameval.store.ingest import Update
from streameval.store.results.history import History
from streameval.store.results.rules import Check
from streameval.store.store import Store

__all__ = ["Check", "History", "Store", "Update"]
