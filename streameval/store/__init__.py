"""The store: nightly partitions, folded once, evaluated together at any time.

::

    STORE/
      ledger/    a Delta table: the partitions that count, with their state files
      states/    one immutable Parquet file for each partition and state
      merged/    states of several nights merged into larger files (compaction); derived
      checks/    a Delta table: judgements of nights by rules; not derived
      history/   a Delta table: the cache of results, each metric night by night, and whole evaluations; derived

An update folds the partitions that are new or changed, writes their states, and then adds them to the ledger in one
commit. An update killed before the commit leaves the store unchanged, with unreferenced files; killed after it, the
store is up to date. Running an update again is harmless: its fingerprint identifies a partition that already counts.

Every file is named by the hash of its content and verified when it is read. A damaged state or ledger is refused by
name; damaged derived data is computed again.

The modules, from the bottom up:

- ``files``: ``location`` (where a store is), ``published`` (files that are named by their content), ``states`` (states
  in files), ``delta`` (small Delta tables), ``ledger``, ``compaction``;
- ``nights``: ``partitions`` (what is new in the data), ``facts`` (of a night, kept with its states), ``configuration``
  (what a store keeps), ``fold`` (partitions to states, here or on a cluster), ``merge`` (states to an evaluation);
- ``results``: ``cache``, ``nightly`` (cached results), ``history``, ``judgements`` (kept verdicts of rules), ``gate``
  (which nights the rules judge), ``diagnosis`` (what is unusual in a night), ``info``;
- ``context`` (the parts of a store) and the operations ``ingest``, ``backfill``, ``evaluate``, ``query`` (night by
  night) and ``vacuum``; ``store`` offers them all.
"""

from streameval.store.ingest import Update
from streameval.store.results.gate import Check
from streameval.store.results.history import History
from streameval.store.store import Store

__all__ = ["Check", "History", "Store", "Update"]
