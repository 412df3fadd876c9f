"""The store: nightly partitions are folded once, and any set of them is evaluated from the states.

::

    STORE/
      ledger/    a Delta table: the partitions that count, with their state files
      states/    one immutable Parquet file for each partition and state
      merged/    states of several nights merged into larger files (compaction); derived
      checks/    a Delta table: judgements of nights by rules; not derived
      history/   a Delta table: the cache of results, of single nights and of whole evaluations; derived

An update folds the partitions that are new or changed, writes their states, and then adds them to the ledger in one
commit. An update killed before the commit leaves the store unchanged, with unreferenced files; killed after it, the
store is up to date. Once an update has ended, a power cut does not take it back. Running an update again is harmless:
its fingerprint identifies a partition that already counts.

Every file is named by the hash of its content and verified when it is read. A damaged state or ledger is refused by
name; damaged derived data is computed again.

The modules, from the bottom up:

- ``files``: ``location`` (the directory of a store), ``published`` (files that are named by their content, states among
  them), ``delta`` (small Delta tables), ``entries`` (nights with their states and facts), ``ledger``, ``compaction``;
- ``nights``: ``partitions`` (find new and changed data), ``configuration`` (columns, policies and key types),
  ``fold`` (partitions to states, in this process or on a cluster), ``merge`` (states to an evaluation), ``slices``
  (stored slices, and filters that they answer), ``results`` (cached), ``history``, ``gate`` (select the nights to
  judge, and store the judgements), ``diagnosis`` (unusual facts of a night), ``statements`` (of late labels),
  ``open_nights`` (rows that wait for labels, and when they close), ``maturity`` (metrics by the age of labels);
- ``context`` (the parts of a store), and what verbs share: ``backfill``, ``delivery`` (late labels of an update),
  ``vacuum``, ``evaluate``, ``attribution`` and ``info`` (descriptions and forecasts);
- ``changing`` and ``store``: the verbs.
"""

from streameval._submodules import import_when_named
from streameval.store.changing import Update
from streameval.store.nights.gate import Check
from streameval.store.nights.history import History
from streameval.store.store import Store

__all__ = ["Check", "History", "Store", "Update"]

import_when_named(__name__)
