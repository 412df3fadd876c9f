"""The rows of a batch as items of an exact state, for states with many groups.

An *item* is a row of the state's table: the words of its key, and the column (*side*) in which it counts. Rows that the
state counts outside its table, such as null scores, are *facts*. There is one function for score, cluster and
contingency states each; tests compare the items with what the builders of these states fold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.budget import Budget
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped.composite import inner_facts
from streameval.states.keyed.ids import identify, mixed, row_nulls
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.two_floats import sums_at
from streameval.states.scores.types import numbers, rank_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from streameval.states.protocol import Batch
    from streameval.typing import Array


class Fact(NamedTuple):
    """Rows that a state counts outside its table: indices in the batch, sides, and amounts (1 each if None)."""

    rows: Array
    side: Array
    amounts: Array | None = None


class Rows(NamedTuple):
    """A batch as items.

    Attributes
    ----------
    rows : int64 array of shape (n,), index in the batch of the row of each item
    keys : uint64 array of shape (n, n_words): the flags of the table, inverted, then its words, in the table's order
    side : uint8 array of shape (n,), 0 or 1: the column of the table that counts the row
    weight : float64 array of shape (n,); empty without weights
    facts : by their name in the header
    """

    rows: Array
    keys: Array
    side: Array
    weight: Array
    facts: Mapping[str, Fact]


def _scores(spec: ScoreSpec, batch: Batch) -> Rows:
    valid = np.flatnonzero(_valid(batch.columns[spec.column]))
    values = numbers(batch.columns[spec.column].drop_null(), spec.type)
    if values.dtype.kind == "f":
        kept = ~np.isnan(values)
        valid, values = valid[kept], values[kept]
    missing = np.delete(np.arange(batch.label.size), valid)
    _refuse(spec, batch, spec.nan == "error" and missing.size)
    facts = {"nan_rows": Fact(missing, batch.label[missing])}
    weight = np.empty(0)
    if spec.weighted and batch.weight is not None:
        weight = batch.weight[valid]
        facts["nan_weights"] = Fact(missing, batch.label[missing], batch.weight[missing])
    return Rows(valid, rank_keys(values, spec.type).reshape(-1, 1), batch.label[valid], weight, facts)


def _clusters(spec: ClusterSpec, batch: Batch) -> Rows:
    array = batch.columns[spec.column]
    valid = _valid(array)
    _refuse(spec, batch, spec.nulls == "error" and not valid.all())
    rows, nulls = np.flatnonzero(valid), np.flatnonzero(~valid)
    fact = "single_rows" if spec.nulls == "singleton" else "dropped_rows"
    keys, facts = _mixed_words(array, spec.type, spec.scope, batch.partition), {fact: Fact(nulls, batch.label[nulls])}
    if spec.unlabelled:
        bare = np.zeros(batch.label.size, np.bool_) if batch.labelled is None else ~batch.labelled
        keys = np.column_stack((keys, bare[rows].astype(np.uint64)))
        at = nulls[bare[nulls]]
        facts["bare_rows"] = Fact(at, np.full(at.size, int(spec.nulls == "drop"), np.uint8))
    return Rows(rows, keys, batch.label[rows], np.empty(0), facts)


def _cells(spec: ContingencySpec, batch: Batch) -> Rows:
    clusters, classes = (batch.columns[name] for name in spec.columns)
    has_cluster, has_class = _valid(clusters), _valid(classes)
    both = has_cluster & has_class
    _refuse(spec, batch, spec.nulls == "error" and not both.all())
    keys = np.zeros((batch.label.size, 1 + sum(spec.keys)), np.uint64)
    keys[:, 0] = ~has_cluster
    middle = 1 + spec.keys.cluster
    keys[has_cluster, 1:middle] = _mixed_words(clusters, spec.cluster_type, spec.scope, batch.partition)
    words = np.column_stack(identify(_present(classes), spec.class_type))
    words[:, 0] = np.where(has_cluster[has_class], words[:, 0], mixed(words[:, 0]))  # the class is then the first word
    keys[has_class, middle:] = words
    rows = np.flatnonzero(both) if spec.nulls == "drop" else np.arange(batch.label.size)
    facts = {"label_rows": Fact(rows, batch.label[rows])}
    if spec.nulls == "drop":
        left = np.flatnonzero(~both)
        facts["dropped_rows"] = Fact(left, has_cluster[left].astype(np.uint8))
    return Rows(rows, keys[rows], (~has_class[rows]).astype(np.uint8), np.empty(0), facts)


def _mixed_words(array: pa.Array, kind: str, scope: str, partition: str) -> Array:
    """Words of the ids that are not null, with the first word mixed, as a uint64 array of shape (n, n_words)."""
    first, rest = identify(_present(array), kind, scope, partition)
    return np.column_stack((mixed(first), rest))


def _valid(array: pa.Array) -> Array:
    valid: Array = row_nulls(array).is_valid().to_numpy(zero_copy_only=False)
    return valid


def _present(array: pa.Array) -> pa.Array:
    """The values that are not null."""
    return row_nulls(array).drop_null()


def _refuse(spec: Any, batch: Batch, refused: object) -> None:
    """If a policy refuses the batch, let the state's own builder raise the error."""
    if refused:
        spec.builder(Budget(), batch.label.size).update(batch)


FORMS: dict[type[Any], Callable[[Any, Batch], Rows]] = {
    ScoreSpec: _scores,
    ClusterSpec: _clusters,
    ContingencySpec: _cells,
}


def fact_sums(inner: Any, rows: Rows, codes: Array, groups: int) -> tuple[Array, Array | None]:
    """Sums of the facts of each group of a batch and their errors, as `GroupTable` takes them."""
    columns, errors, weighted = [], [], False
    for name in inner_facts(inner):
        sums, slips = np.zeros((2, 2 * groups, 1))
        if name in rows.facts:
            fact = rows.facts[name]
            places, amounts = 2 * codes[fact.rows] + fact.side, fact.amounts
            if amounts is None:
                sums[:, 0] = np.bincount(places, minlength=2 * groups)
            else:
                weighted, amounts = True, amounts.reshape(-1, 1)
                sums, slips = sums_at(places, amounts, np.zeros_like(amounts), 2 * groups)
        columns.append(sums.reshape(-1, 2))
        errors.append(slips.reshape(-1, 2))
    return np.hstack(columns), np.hstack(errors) if weighted else None
