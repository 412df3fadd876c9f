"""Families: for each kind of input, the states its metrics need, the rows they cover, and how they are finalized.

==========  ============================================  ========================================
family      input                                         state
==========  ============================================  ========================================
`score`     a score column                                exact counts, or a histogram (`approx`)
`cluster`   a cluster column                              sizes and positives of clusters
`groups`    a score column and a column of groups         scores by group
`sample`    a sample of a score column (`approx_agc`)     digests, or bins in a second pass
`classes`   a cluster column against the class column     contingency counts
`sketch`    a column of numbers                           a quantile sketch
==========  ============================================  ========================================

A family is the only place that knows which states go with which metrics.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.evaluation.families.clusters import Clusters
from streameval.evaluation.families.contingency import Contingency
from streameval.evaluation.families.protocol import Counted, Family, KeyTypes, MetricRequest
from streameval.evaluation.families.scores import Groups, Samples, Scores
from streameval.evaluation.families.sharded import scalar
from streameval.evaluation.families.sketches import Sketches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.request import Request
    from streameval.results import Scalar
    from streameval.scan import Scan

__all__ = ["FAMILIES", "Counted", "Family", "MetricRequest", "finalize", "planned", "scalar"]

_ALL: tuple[Family, ...] = (Scores(), Groups(), Clusters(), Samples(), Contingency(), Sketches())
FAMILIES = {family.name: family for family in _ALL}


def planned(request: Request, found: Scan) -> list[MetricRequest]:
    """The states to build for a request, with the metrics of each, family by family.

    Raises
    ------
    OptionError
        If the data do not allow what is requested.
    SchemaError
        If a column has a type that cannot be a score or an id; the message names a file that has it.
    """
    if request.clusters and request.scope == "partition" and not all(piece.partition for piece in found.pieces):
        msg = "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
        raise OptionError(msg)
    if request.sampling:
        request.sampling.check(found)
    types = KeyTypes(found)
    return [wanted for family in FAMILIES.values() for wanted in family.requests(request, types)]


def finalize(engine: Engine, answered: Sequence[tuple[MetricRequest, Any]]) -> Iterator[Scalar]:
    """The results of all states, in the order given, with their columns, rows and positives."""
    for _, group in groupby(answered, key=lambda pair: pair[0].family.sharded):  # all shards of a group in one graph
        pairs = list(group)
        rows = pairs[0][0].family.finalize(engine, [(state, wanted.metrics) for wanted, state in pairs])
        for (wanted, state), row in zip(pairs, rows, strict=True):
            counted = wanted.family.counted(wanted, state)
            for value in row:
                yield replace(value, of=wanted.of, rows=counted.rows, positives=counted.positives)
