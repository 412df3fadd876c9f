"""Clusters and classes whose cost rose most: the attribution of a night compared with those of its usual nights.

Only the costliest `DEEP` groups of a usual night are known. Any other group costs at most as much as the last of them,
or nothing if the night has fewer than `DEEP` groups. This bound is used as its cost, so that an increase is never
overstated.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from streameval.store.results.diagnosis import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streameval.evaluation.attributed import Attribution

DEEP = 1000  # number of costliest groups to find in each usual night
_REPORTED = 5  # number of groups reported per table
_COSTS = {"merges": ("cluster", "false_pairs"), "splits": ("class", "missed_pairs"), "impure": ("cluster", "lost")}
_COST_NAMES = {"false_pairs": "false pairs", "missed_pairs": "missed pairs", "lost": "AUL loss"}


def cost_increases(of: str, night: Attribution, usual: Sequence[Attribution], classes: str | None) -> list[Finding]:
    """The groups of a night whose cost rose most compared with usual nights; within each table, largest increase first.

    Parameters
    ----------
    of : the cluster column
    night : the attribution of the night
    usual : the attributions of the usual nights, with `DEEP` groups each; empty if ids are only valid within a night
    classes : the column of classes
    """
    found: list[Finding] = []
    for name, rows in night.tables().items():
        if name not in _COSTS:
            continue
        key, cost = _COSTS[name]
        before = [_costs(one.tables()[name], key, cost) for one in usual]
        increased = []
        for group, value in _costs(rows, key, cost)[0].items():
            middle = median(known.get(group, least) for known, least in before) if before else math.nan
            if not value <= middle:
                what = f"{of if key == 'cluster' else classes} {group} {_COST_NAMES[cost]}"
                increased.append(Finding(what, float(value), float(middle), math.nan))
        found += sorted(increased, key=lambda one: (one.usual if before else 0.0) - one.value)[:_REPORTED]
    return found


def _costs(rows: pa.Table, key: str, cost: str) -> tuple[dict[Any, float], float]:
    """The cost of each group in a table, and an upper bound on the cost of any other group."""
    costs = dict(zip(rows[key].to_pylist(), rows[cost].to_pylist(), strict=True))
    return costs, rows[cost][-1].as_py() if rows.num_rows >= DEEP else 0
