"""Slices ranked by cost: shortfall × rows, where the shortfall is the value of all rows minus that of the slice.

The value of a small slice deviates by chance. Therefore slices with fewer than `LEAST` effective units of rows,
positives or negatives are left out first, and counted; without a unit column each row is a unit.

The worst of many slices lies far below the whole by chance. Therefore the intervals of the R slices shown, out of m
eligible ones, have level 1 − R (1 − level) / m: the expected share of shown intervals that miss the true value is then
at most 1 − level.

References
----------
Benjamini, Y. and Yekutieli, D. (2005). False discovery rate-adjusted multiple confidence intervals for selected
parameters. *JASA* 100, 71–81.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import OptionError
from streameval.evaluation.intervals import better_end
from streameval.metrics.catalogue import entry_of, usual
from streameval.metrics.contingency.attribution import GAINS
from streameval.results import slice_column
from streameval.wording import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.evaluation.costs.attributed import Attribution
    from streameval.evaluation.result import Evaluation
    from streameval.results import Scalar

LEAST = 20  # least number of effective units of a slice
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
    """The metric of the slices: the given one, unless that is the metric of the gains of classes.

    Raises
    ------
    OptionError
        If the metric has no better end.
    """
    asked = None if given.get("classes") and given["metric"] in GAINS else given["metric"]
    metric = str(asked or usual("score"))
    entry = entry_of(canonical(metric))
    if entry is not None and entry.better is None:
        msg = f"metric={metric!r} has no better end, so no slice falls short in it; choose one that has"
        raise OptionError(msg, "metric")
    return metric


def with_slices(
    result: Attribution | None,
    found: Evaluation,
    given: Mapping[str, Any],
    at_level: Callable[[float], Sequence[Scalar]],
) -> Attribution:
    """Add the table of slices to an attribution.

    Parameters
    ----------
    result : the attribution of clusters; None if no cluster column was named
    found : the evaluation of the slices, with the options of `of_slices`
    given : options of `streameval.attribute`
    at_level : returns the results of all slices, in the order of `found`, with intervals at another level

    Raises
    ------
    OptionError
        If the metric has no better end, or names several metrics.
    """
    from streameval.evaluation.costs.attributed import Attribution

    metric = _metric(given)
    whole, slices = _split(found.results, metric)
    sign = -1 if better_end(whole.metric) == "lower" else 1
    fit = [i for i, one in enumerate(slices) if _fits(one)]
    short = [(sign * (whole.value - slices[i].value), i) for i in fit]
    worst = sorted((each for each in short if each[0] > 0), key=lambda each: -each[0] * slices[each[1]].rows)
    worst = worst[: given["top"]]
    totals = {
        "slices": len(slices),
        "slices_left_out": len(slices) - len(fit),
        "slices_without_value": sum(math.isnan(one.value) for one in slices),
        "slices_least_units": LEAST,
        "whole": whole.value,
    }
    if found.ci_level is not None and worst:
        totals["slices_ci_level"] = level = 1 - len(worst) * (1 - found.ci_level) / len(fit)
        slices = list(at_level(level))
    base = result or Attribution(
        found.rows, None, None, None, None, {},
        dropped=found.dropped, skipped=found.skipped, options=found.options, source=found.source,
    )  # fmt: skip
    slicings = dict.fromkeys(tuple(one.slice or ()) for one in slices)
    shown = _table([(cost, slices[i]) for cost, i in worst], list(slicings))
    return replace(base, slices=shown, totals=base.totals | totals, slice_metric=metric)


def _split(results: Sequence[Scalar], metric: str) -> tuple[Scalar, list[Scalar]]:
    """Split the results into that of all rows and those of slices."""
    named = {result.metric for result in results}
    if len(named) != 1:
        msg = f"metric={metric!r} names {len(named)} metrics of a score; slices are ranked by one"
        raise OptionError(msg, "metric")
    return next(r for r in results if r.slice is None), [r for r in results if r.slice is not None]


def _fits(one: Scalar) -> bool:
    """Whether a slice has a value, and enough units to be ranked."""
    return _units(one) >= LEAST and not math.isnan(one.value)


def _units(one: Scalar) -> float:
    """The effective number of units of a slice; without units, the smaller class."""
    if one.effective_units is not None:
        return one.effective_units
    positives = one.positives or 0
    return min(positives, one.rows - positives)


def _table(worst: Sequence[tuple[float, Scalar]], slicings: Sequence[tuple[str, ...]]) -> pa.Table:
    """One row per slice, largest cost first; columns of other slicings are null, those of slicings without rows absent.

    With several slicings, the first column `by` names the slicing.
    """
    there = {name for _, one in worst for name in one.slice or ()}
    columns = [name for name in dict.fromkeys(chain.from_iterable(slicings)) if name in there or not worst]
    several = len(slicings) > 1
    table = {"by": pa.array([",".join(one.slice or ()) for _, one in worst], pa.string())} if several else {}
    table |= {name: slice_column([(one.slice or {}).get(name) for _, one in worst]) for name in columns}
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
