"""Tables: the two passes over a contingency table, on a cluster.

Cells are visited by cluster (`streameval.states.pairs`) and then by class (`streameval.states.class_pass`). Ranges of
clusters lie on workers already; each makes its first pass there, the cells go through an exchange of their own, from
ranges of clusters to ranges of classes, and each of those makes its second pass. The client adds up summaries.

::

    range of clusters ─► first-r ─► split-r-q ─► merge-q ─► second-q ─► summaries
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import dask

from streameval.cluster.connection import names
from streameval.cluster.exchange import exchange
from streameval.states.class_pass import by_class, without_cluster
from streameval.states.ranges import balanced, buckets, hollow, joined, keyed, rebuilt, restored
from streameval.states.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.cluster.connection import Connection
    from streameval.cluster.work import Resources
    from streameval.fold import Folded
    from streameval.states.cells import ClassCells
    from streameval.states.ranges import Rows
    from streameval.states.runs import Interval

__all__ = ["summary"]

_CELLS = "cells"  # the key of what the exchange moves

First = tuple[tuple[Summary, "ClassCells"], dict[str, "Rows"]]


def first(
    ranges: Mapping[Any, Rows], outlines: Folded, spec: Any, shards: Sequence[Interval], resources: Resources
) -> First:
    """On a worker: first pass over a range of clusters; its summary and the outline of its cells, and their rows."""
    state = restored(outlines.states[spec], ranges[spec])
    found = [state.first(shard, resources.budget) for shard in shards]
    cells = state.classes(part for _, part in found)
    total = reduce(Summary.merge, (part for part, _ in found), Summary())
    return (total, hollow(cells)), {_CELLS: keyed(cells)}


def outline(found: First) -> tuple[Summary, ClassCells]:
    """On a worker: what of the first pass goes to the client."""
    return found[0]


def second(ranges: Mapping[str, Rows], cells: ClassCells, interval: Interval, resources: Resources) -> Summary:
    """On a worker: second pass over a range of classes."""
    here = restored(cells, ranges[_CELLS])
    parts = here.intervals(resources.budget, interval)
    return reduce(Summary.merge, (by_class(here, part, resources.budget) for part in parts), Summary())


def summary(
    connection: Connection,
    state: Any,
    outlines: Any,
    futures: Sequence[Any],
    shards: Sequence[Sequence[Interval]],
    resources: Resources,
) -> Summary:
    """The summary of a table whose rows lie on workers.

    Parameters
    ----------
    connection : the client
    state : the outline of the state
    outlines : future of the outlines
    futures, shards : of each range
    resources : of workers
    """
    key = names()
    nodes = []
    for r, (future, part) in enumerate(zip(futures, shards, strict=False)):
        one = dask.delayed(partial(first, spec=state.spec, shards=part, resources=resources), pure=False)
        made = one(future, outlines, dask_key_name=key("clusters", r))
        nodes += [made, dask.delayed(outline, pure=False)(made, dask_key_name=key("outline", r))]
    made = connection.submit(nodes)
    found = connection.gather(made[1::2])
    cells = rebuilt(found[0][1], joined([keyed(part) for _, part in found]))
    cuts = [cut for cut, _ in balanced(cells, buckets(cells), len(found))]
    merged = exchange(made[0::2], [{_CELLS: cut} for cut in cuts], key)
    nodes = []
    for q, (node, cut) in enumerate(zip(merged, cuts, strict=True)):
        one = dask.delayed(partial(second, cells=cells, interval=cut, resources=resources), pure=False)
        nodes.append(one(node, dask_key_name=key("classes", q)))
    rows = state.without_cluster.rows
    alone = without_cluster(int(rows[0::2].sum()), int(rows[1::2].sum()))
    parts: list[Summary] = [total for total, _ in found] + connection.gather(connection.submit(nodes))
    return reduce(Summary.merge, parts, alone)
