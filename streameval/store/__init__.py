"""The store: nightly partitions, folded once, evaluated together at any time.

::

    STORE/
      ledger/    a Delta table: the partitions that count, with their state files; all else can be derived
      states/    one immutable Parquet file for each partition and state
      merged/    states of several nights merged into larger files (compaction); derived
      checks/    a Delta table: what rules said of nights; not derived
      history/   a Delta table: the cache of results, each metric night by night, and whole evaluations; derived

An update folds the partitions that are new or changed, writes their states, and then commits them to the ledger at
once. Killed before the commit, it leaves files that nothing refers to, and the store as it was; killed after, the store
is up to date. Running it again is harmless: a partition that counts already is recognised by its fingerprint.

Every file is named by the hash of its content and verified when it is read. A damaged state or ledger is refused by
name; damaged derived data are computed again.

The modules, from the bottom up:

- ``files``: ``location`` (where a store is), ``published`` (files that are named by their content), ``states`` (states
  in files), ``delta`` (small Delta tables), ``ledger``, ``compaction``;
- ``nights``: ``partitions`` (what is new in the data), ``facts`` (of a night, beside its states), ``configuration``
  (what a store keeps), ``fold`` (partitions to states, here or on a cluster), ``merge`` (states to an evaluation);
- ``results``: ``cache``, ``nightly`` (results that are cached), ``history``, ``judgements`` (what rules said, kept),
  ``gate`` (which nights they judge), ``diagnosis`` (what is unusual in a night), ``info``;
- ``context`` (the parts of one store) and the verbs: ``ingest``, ``backfill``, ``query``, ``vacuum``; ``store`` has
  them all.
"""

from streameval.store.ingest import Update
from streameval.store.results.gate import Check
from streameval.store.results.history import History
from streameval.store.store import Store

__all__ = ["Check", "History", "Store", "Update"]
