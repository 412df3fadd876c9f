"""Slices by what hurts most: how far each falls short of the whole, times its rows.

A slice with few rows is far off by chance alone. So slices with fewer than `LEAST` effective units of rows, positives
or negatives are left out first, and counted; without a unit column each row is a unit.

The worst of many slices lies far below by chance alone. So the intervals of the R slices that are shown, out of m that
could be, are at level 1 − R (1 − level) / m: then at most a share of 1 − level of the intervals shown is wrong.

References
----------
Benjamini, Y. and Yekutieli, D. (2005). False discovery rate-adjusted multiple confidence intervals for selected
parameters. *JASA* 100, 71–81.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import OptionError
from streameval.evaluation import evaluate
from streameval.evaluation.intervals import better_end
from streameval.metrics.catalogue import entry_of, usual
from streameval.wording import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.attributed import Attribution
    from streameval.evaluation.intervals import Estimated
    from streameval.results import Scalar

__all__ = ["LEAST", "of_slices", "with_slices"]

LEAST = 20  # effective units of a slice
_SHARED = (
    "ci",
    "unit",
    "where",
    "memory",
    "spill",
    "on_error",
    "delta_version",
    "threads",
    "client",
    "scheduler_timeout",
    "progress",
)


def of_slices(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `streameval.evaluate` for the slices that `streameval.attribute` ranks."""
    own = {name: given[name] for name in ("pos_label", "score", "by")}
    shared = {name: given[name] for name in _SHARED if given.get(name) is not None}
    return {"label": given["label"] or "label", "metrics": [_metric(given)], **own, **shared}


def _metric(given: Mapping[str, Any]) -> str:
    """The metric that slices fall short in.

    Raises
    ------
    OptionError
        If neither end of it is better.
    """
    metric = str(given["metric"] or usual("score"))
    entry = entry_of(canonical(metric))
    if entry is not None and entry.better is None:
        msg = f"metric={metric!r} has no better end, so no slice falls short in it; choose one that has"
        raise OptionError(msg, "metric")
    return metric


def with_slices(result: Attribution | None, data: Any, given: Mapping[str, Any]) -> Attribution:
    """The result with a table of slices; without other tables it is made of this one alone.

    Parameters
    ----------
    result : what clusters cost; None where no cluster column was named
    data : as `streameval.evaluate` takes it
    given : options of `streameval.attribute`
    """
    from streameval.evaluation.attributed import Attribution

    metric, found = _metric(given), evaluate(data, **of_slices(given))
    whole, slices = _split(found.results, metric)
    sign = -1 if better_end(whole.metric) == "lower" else 1
    estimates: Sequence[Estimated | None] = found.slice_estimates or [None] * len(slices)
    fit = [(one, own) for one, own in zip(slices, estimates, strict=True) if _fits(one)]
    short = [(sign * (whole.value - one.value), one, own) for one, own in fit]
    worst = sorted((each for each in short if each[0] > 0), key=lambda each: -each[0] * each[1].rows)[: given["top"]]
    level = 1 - len(worst) * (1 - (found.ci_level or 0)) / max(1, len(fit))
    shown = [(cost, one if own is None else own.own.scalar_with(level)) for cost, one, own in worst]
    base = result or Attribution(
        found.rows, None, None, None, None, {},
        dropped=found.dropped, skipped=found.skipped, options=found.options, source=found.source,
    )  # fmt: skip
    totals = {
        **base.totals,
        "slices": len(slices),
        "slices_left_out": len(slices) - len(fit),
        "slices_least_units": LEAST,
        "whole": whole.value,
    }
    if found.ci_level is not None and shown:
        totals["slices_ci_level"] = level
    return replace(base, slices=_table(shown), totals=totals, slice_metric=metric)


def _split(results: Sequence[Scalar], metric: str) -> tuple[Scalar, list[Scalar]]:
    """The value of all rows, and those of the slices."""
    named = {result.metric for result in results}
    if len(named) != 1:
        msg = f"metric={metric!r} names {len(named)} metrics of a score; slices are ranked by one"
        raise OptionError(msg, "metric")
    return next(r for r in results if r.slice is None), [r for r in results if r.slice is not None]


def _fits(one: Scalar) -> bool:
    """Whether a slice has a value, and enough units to be ranked."""
    return _units(one) >= LEAST and not math.isnan(one.value)


def _units(one: Scalar) -> float:
    """The smallest effective number of units of a slice."""
    if one.effective_units is not None:
        return one.effective_units
    positives = one.positives or 0
    return min(positives, one.rows - positives)


def _table(worst: Sequence[tuple[float, Scalar]]) -> pa.Table:
    """One row for each slice, the largest cost first; a column that is not of its slicing is null."""
    columns = list(dict.fromkeys(name for _, one in worst for name in one.slice or ()))
    table = {name: pa.array([(one.slice or {}).get(name) for _, one in worst]) for name in columns}
    return pa.table(
        {
            **table,
            "rows": pa.array([one.rows for _, one in worst], pa.int64()),
            "value": pa.array([one.value for _, one in worst], pa.float64()),
            "ci_lower": pa.array([one.ci_lower for _, one in worst], pa.float64()),
            "ci_upper": pa.array([one.ci_upper for _, one in worst], pa.float64()),
            "shortfall": pa.array([short for short, _ in worst], pa.float64()),
        }
    )
