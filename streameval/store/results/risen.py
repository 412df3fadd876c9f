"""Clusters and classes whose cost rose most: the attribution of a night beside those of its usual nights.

A usual night is asked for its costliest `DEEP` groups. A group that is not among them costs at most as much as the last
of them, or nothing where they are all that cost anything; so a rise is never told too large.
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

__all__ = ["DEEP", "RISEN", "risen"]

RISEN = 5  # groups that are told of each table
DEEP = 1000  # costliest groups of a usual night that they are looked for among
_COSTS = {"merges": ("cluster", "false_pairs"), "splits": ("class", "missed_pairs"), "impure": ("cluster", "lost")}
_WORDS = {"false_pairs": "false pairs", "missed_pairs": "missed pairs", "lost": "lost of aul"}


def risen(of: str, night: Attribution, usual: Sequence[Attribution], classes: str | None) -> list[Finding]:
    """The groups of a night whose cost rose most against usual nights, largest rise of each table first.

    Parameters
    ----------
    of : the cluster column
    night : its costliest groups
    usual : the costliest `DEEP` groups of the usual nights; none where ids mean nothing beyond their night
    classes : the column of classes
    """
    found: list[Finding] = []
    for name, rows in night.tables().items():
        if name not in _COSTS:
            continue
        key, cost = _COSTS[name]
        before = [_costs(one.tables()[name], key, cost) for one in usual]
        told = []
        for group, value in _costs(rows, key, cost)[0].items():
            middle = median(known.get(group, least) for known, least in before) if before else math.nan
            if not value <= middle:
                what = f"{of if key == 'cluster' else classes} {group} {_WORDS[cost]}"
                told.append(Finding(what, float(value), float(middle), math.nan))
        found += sorted(told, key=lambda one: (one.usual if before else 0.0) - one.value)[:RISEN]
    return found


def _costs(rows: pa.Table, key: str, cost: str) -> tuple[dict[Any, float], float]:
    """Cost of each group of a table, and the most that any other can cost."""
    costs = dict(zip(rows[key].to_pylist(), rows[cost].to_pylist(), strict=True))
    return costs, rows[cost][-1].as_py() if rows.num_rows >= DEEP else 0
