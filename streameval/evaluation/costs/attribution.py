"""Attribute: the clusters, classes and slices that cost most, and how much each costs.

One pass folds the same states as `evaluate`. One sweep over their cells finds the costliest groups in bounded memory,
and another one their largest cells. Texts of hashed ids and examples take one more scan of the data, for the groups
that are shown.

Slices are ranked by shortfall × rows. The value of a small slice deviates by chance, so slices with fewer than `LEAST`
effective units of rows, positives or negatives are left out first, and counted; without a unit column each row is a
unit. The worst of many slices lies far below the whole by chance, so the intervals of the R slices shown, out of m
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

from streameval.engine import start
from streameval.errors import OptionError
from streameval.evaluation import evaluate, explain
from streameval.evaluation.costs.run import Run, checked_options
from streameval.evaluation.files import RUN_OPTIONS
from streameval.evaluation.intervals import better_end
from streameval.metrics.catalogue import entry_of, usual
from streameval.metrics.contingency.attribution import GAINS
from streameval.options import command
from streameval.results import slice_column
from streameval.wording import canonical

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from streameval.evaluation.costs.attributed import Attribution
    from streameval.evaluation.files import Forecast
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
        raise OptionError(
            f"metric={metric!r} has no better end, so no slice falls short in it; choose one that has", "metric"
        )
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
        raise OptionError(
            f"metric={metric!r} names {len(named)} metrics of a score; slices are ranked by one", "metric"
        )
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


def forecasts(data: Any, **given: Any) -> list[Forecast]:
    """Forecast each pass that `attribute` would make with the same arguments; only footers are read.

    Raises
    ------
    StreamevalError
        What `attribute` raises before it reads the data.
    """
    options = checked_options(given)
    found = []
    if given.get("cluster") and (options["classes"] or given.get("label")):
        engine = start(**{name: given[name] for name in RUN_OPTIONS if name in given})
        found.append(Run.of(data, options, engine).files.forecast())
    if options["by"]:
        found.append(explain(data, **of_slices(options)))
    return found


def attribute(
    data: Any,
    *,
    cluster: str | None = None,
    score: str | None = None,
    by: str | Sequence[str] | None = None,
    ci: float | None = None,
    unit: str | None = None,
    classes: str | None = None,
    changed_from: str | None = None,
    label: str | None = None,
    pos_label: bool | int | float | str | None = None,
    metric: str | None = None,
    aul_threshold: float = 1,
    top: int = 20,
    examples: str | None = None,
    examples_per: int = 3,
    nulls: str = "error",
    unlabelled: str = "error",
    cluster_scope: str = "global",
    where: Any = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    delta_version: int | None = None,
    threads: int | None = None,
    client: Any = None,
    scheduler_timeout: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> Attribution:
    """Rank the clusters, classes and slices that cost most, and compute exactly how much each costs.

    Parameters
    ----------
    data : see `streameval.evaluate`
    cluster : str, optional
        The cluster column.
    score : str, optional
        A score column, for slices.
    by : str or sequence of str, optional
        Slicing columns, as in `streameval.evaluate`. Slices are ranked by shortfall × rows, where the shortfall is the
        value of all rows minus that of the slice. Slices with fewer than 20 positives or negatives are left out. The
        label column is `label`, by default ``label``. The data are read once more.
    ci, unit : optional
        Sampling intervals of the slices, as in `streameval.evaluate`. They are widened for selection: the intervals of
        R slices shown out of m eligible ones have level 1 − R (1 − ci) / m. The expected share of shown intervals that
        miss the true value (false coverage rate) is then at most 1 − ci. With `unit`, a slice needs 20 effective units.
    classes : str, optional
        Column of the clusters' true classes, for the worst merges and splits.
    changed_from : str, optional
        Column of an earlier clustering in place of classes, for the clusters that were merged and split since.
    label : str, optional
        Column of labels, for the clusters that lower the area under the lift curve most.
    pos_label : bool, int, float or str, optional
        See `streameval.evaluate`.
    metric : str, optional
        The metric of the gains: `adjusted_rand_index` (the default), `pairwise.precision`, `pairwise.recall`,
        `pairwise.fscore`, `bcubed_precision`, `bcubed_recall` or `bcubed_fscore`. Groups are always ranked by their
        pairs. With `by`, any other name is the metric of the slices (`roc_auc` by default).
    aul_threshold : float
        Clusters larger than this count as if all positive in the assumed height of `aul`; at least 1.
    top : int
        Number of clusters and classes in each table, from 1 to 1,000,000. Equal costs are ranked by id.
    examples : str, optional
        A column of texts, numbers, booleans or times. Up to `examples_per` of its distinct values are added, in a
        column `examples`, for each of the largest cells shown, and for the negatives and positives of impure clusters.
        They are chosen by a hash of the value. The data are read once more.
    examples_per : int
        Maximum number of examples of each cell, from 1 to 1,000.
    nulls, unlabelled, cluster_scope, where, memory, spill, on_error, delta_version, threads, client,
    scheduler_timeout, progress
        See `streameval.evaluate`. With ``cluster_scope="partition"``, ids are followed by a column `partition`.

    Returns
    -------
    Attribution

    Raises
    ------
    StreamevalError
        See `streameval.errors`; the message names the file, the column and the remedy.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"campaign": [1, 1, 1, 2, 2], "cluster": [7, 7, 8, 7, 9]})
    >>> found = attribute(data, cluster="cluster", classes="campaign", metric="pairwise.precision")
    >>> found.merges.select(["cluster", "false_pairs", "share", "gain"]).to_pylist()
    [{'cluster': 7, 'false_pairs': 2, 'share': 1.0, 'gain': 0.6666666666666666}]
    >>> found.splits["class"].to_pylist(), found.totals["missed_pairs"]
    ([1, 2], 3)
    """
    given = dict(locals())  # every argument by name
    del given["data"]
    options = checked_options({name: value for name, value in given.items() if name != "progress"})
    run = {name: given[name] for name in RUN_OPTIONS}
    clustered = given["cluster"] and (options["classes"] or given["label"])
    found = None
    if clustered:
        engine = start(**run)
        with engine.progress:
            found = Run.of(data, options, engine).finish()
    if found is not None and not options["by"]:
        return found
    sliced = evaluate(data, **of_slices({**options, **run}))
    made = with_slices(
        found, sliced, options, lambda level: [one.own.scalar_with(level) for one in sliced.slice_estimates]
    )
    asked = {**options, "classes": given["classes"]}  # undo `checked_options`, which moves changed_from to classes
    told = command("attribute", made.source.data, asked) if made.source.command else ""
    return replace(made, source=replace(made.source, command=told))
