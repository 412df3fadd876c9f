"""The sweep over folded states that finds the costliest groups and their largest cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.evaluation.costs.tables import SHOWN, ImpureTable, PairTables, Shown
from streameval.evaluation.families import watch_table
from streameval.metrics.clusters.attribution import WorstImpure
from streameval.metrics.contingency.attribution import GAIN, GAINS, Largest, Members, PairCosts
from streameval.states.values import ValuesSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.evaluation.costs.attributed import Attribution
    from streameval.evaluation.costs.tables import Ids
    from streameval.typing import Array

Values = Mapping[str, list[list[bytes]]]  # for each name, one list of values per key
LookUp = Callable[[Mapping[str, ValuesSpec]], Values]


@dataclass(frozen=True)
class Sweep:
    """A sweep over the states of one cluster column.

    Attributes
    ----------
    options : options of `streameval.attribute`, in plain form
    engine : the engine that holds the states
    clusters, classes : their ids; classes are None if only labels are used
    look_up : reads the values of a few groups from the data; None without data
    """

    options: Mapping[str, Any]
    engine: Engine
    clusters: Ids
    classes: Ids | None
    look_up: LookUp | None

    def added(self, result: Attribution, table: Any, sizes: Any) -> Attribution:
        """Add the tables of a contingency state and of a cluster state to a result; either state may be None."""
        pairs = self._pairs(table, self.classes) if table is not None and self.classes is not None else None
        impure = self._impure(sizes) if sizes is not None else None
        values = self._values(pairs, impure)
        if pairs is not None:
            asked = self.options["metric"]
            result = pairs.added(result, self.clusters, asked if asked in GAINS else GAIN, values)
        return result if impure is None else impure.added(result, self.clusters, values)

    def _pairs(self, state: Any, classes: Ids) -> PairTables:
        """The worst merges and splits of a table."""
        signed = self.clusters.signed, classes.signed
        summary, costs = watch_table(self.engine, state, partial(PairCosts, self.options["top"], signed))
        merges, splits = costs.merges.ranked(), costs.splits.ranked()
        members = Members.none(), Members.none()
        if len(merges[0]) or len(splits[0]):
            members = self.engine.finalize([(state, [Largest(merges[0], splits[0], signed, SHOWN)])])[0][0]
        return PairTables(classes, summary, costs, Shown(*merges, members[0]), Shown(*splits, members[1]))

    def _impure(self, state: Any) -> ImpureTable:
        """The clusters that lower the area under the lift curve most."""
        worst = WorstImpure(self.options["aul_threshold"], self.options["top"], self.clusters.signed)
        return ImpureTable(self.engine.finalize([(state, [worst])])[0][0])

    def _values(self, pairs: PairTables | None, impure: ImpureTable | None) -> Values | None:
        """Look up the texts of ids (recorded in `clusters` and `classes`) and examples by table, in one scan."""
        wanted = self._wanted(pairs, impure)
        if not wanted or self.look_up is None:
            return {} if self.options["examples"] else None
        found = self.look_up(wanted)
        for name, ids in (("cluster ids", self.clusters), ("class ids", self.classes)):
            if name in found and ids is not None:
                ids.learn(wanted[name].wanted, found[name])
        return found if self.options["examples"] else None

    def _wanted(self, pairs: PairTables | None, impure: ImpureTable | None) -> dict[str, ValuesSpec]:
        """The values to collect, by name."""
        per, column = self.options["examples_per"], self.options["examples"]
        specs: dict[str, ValuesSpec] = {}

        def want(name: str, ids: Sequence[Ids], keys: Array, column: str, most: int, *, by_label: bool = False) -> None:
            if len(keys):
                columns = tuple(each.column for each in ids)
                specs[name] = ValuesSpec(columns, by_label, np.ascontiguousarray(keys).tobytes(), column, most)

        clusters = [impure.worst.ids] if impure is not None else []
        if pairs is not None and self.classes is not None:
            both = self.clusters, self.classes
            clusters += [pairs.merges.ids, pairs.splits.members.ids]
            classes = [pairs.splits.ids, pairs.merges.members.ids]
            if self.classes.hashed:
                want("class ids", [self.classes], _union(classes), self.classes.column.name, 1)
            if column:
                want("merges", both, pairs.merges.keys(of_classes=False), column, per)
                want("splits", both, pairs.splits.keys(of_classes=True), column, per)
        if self.clusters.hashed:
            want("cluster ids", [self.clusters], _union(clusters), self.clusters.column.name, 1)
        if column and impure is not None and len(impure.worst.ids):
            want("impure", [self.clusters], impure.keys(), column, per, by_label=True)
        return specs


def _union(ids: Sequence[Array]) -> Array:
    """The distinct ids of several arrays, as a uint64 array of shape (n, n_words)."""
    parts = [part for part in ids if len(part)]
    return np.unique(np.concatenate(parts), axis=0) if parts else np.empty((0, 1), np.uint64)
