"""LabelledGroups: scores by label and unit, of which the many rows without a label have no tag.

They are one group, counted as scores of all rows are: a row takes the memory and the time of a row without groups. Only
the labelled rows have tags. The stored table is that of `TaggedGroups`; on reading, all rows are given tags.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from streameval.budget import Budget
from streameval.states.grouped.builder import TaggedBuilder
from streameval.states.grouped.groups import DenseGroups, Grouped
from streameval.states.grouped.keys import UNLABELLED
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.protocol import Batch, SplitSpec, mergeable
from streameval.typing import pack_bits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from streameval.states.scores.counts import ScoreCounts


@dataclass(frozen=True, eq=False)
class LabelledGroups(Grouped):
    """Scores by `streameval.states.grouped.keys.Labelled`, without strata.

    Attributes
    ----------
    rest : rows without a label
    tagged : labelled rows; of a stored state all rows
    """

    rest: ScoreCounts
    tagged: TaggedGroups

    def _group_names(self) -> list[bytes]:
        names: list[bytes] = self.tagged.table.names.to_pylist()
        rest = [UNLABELLED] if self.rest.totals().rows or self.rest.nan_rows.any() else []
        return list(dict.fromkeys(names + rest))

    def merge(self, other: LabelledGroups) -> LabelledGroups:
        """Groups of both inputs; groups with equal names are merged."""
        mergeable(self, other)
        return LabelledGroups(self.spec, self.rest.merge(other.rest), self.tagged.merge(other.tagged))

    def total(self, budget: Budget | None = None) -> ScoreCounts:
        """The inner state of all rows, without copying them."""
        return self.rest.merge(self.tagged.total(budget))

    def _chosen(self, names: Collection[bytes], budget: Budget | None) -> ScoreCounts:
        others = {group for group, name in self.tagged.named.items() if name not in names}
        chosen = cast("ScoreCounts", self.tagged.without(*others, budget=budget))
        return chosen.merge(self.rest) if UNLABELLED in names else chosen

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """First a row with the facts of each group, then their inner tables; groups in the order of their hashes."""
        tagged = self.tagged
        if UNLABELLED in self._group_names():
            rest = DenseGroups(self.spec, {UNLABELLED: self.rest}).to_arrow()
            tagged = tagged.merge(self.spec.from_arrow({}, rest, budget or Budget()).tagged)
        yield from tagged.to_arrow(budget)

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        return object.__sizeof__(self) + sys.getsizeof(self.rest) + sys.getsizeof(self.tagged)


class LabelledBuilder:
    """Builder of `LabelledGroups`; owned by one task."""

    def __init__(self, spec: SplitSpec, budget: Budget, capacity: int) -> None:
        self._spec = spec
        self._rest = spec.inner.builder(budget, capacity)
        self._tagged = TaggedBuilder(TaggedGroups.empty(spec), budget, max(1, capacity // 16))  # labels are few

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        if batch.labelled is not None and not batch.labelled.all():
            rest, inner = pack_bits(~batch.labelled), self._spec.inner
            columns = {name: batch.columns[name].filter(rest) for name in inner.columns}
            rows = len(columns[inner.column])
            weight = np.ones(rows) if inner.weighted else None
            self._rest.update(Batch(np.zeros(rows, np.uint8), weight, columns, name=batch.name))
        labelled = batch.with_labels()
        if labelled.label.size:
            self._tagged.update(labelled)

    def state(self) -> LabelledGroups:
        """The state of everything folded; the builder must not be used afterwards."""
        return LabelledGroups(self._spec, self._rest.state(), self._tagged.state())
