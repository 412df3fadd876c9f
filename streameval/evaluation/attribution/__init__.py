"""Attribute: which clusters and classes cost the score, and by how much.

One pass folds the states that `evaluate` folds as well. A sweep over their cells finds the costliest groups, in bounded
memory; another finds their largest cells. Texts of hashed ids and examples take one more scan of the data, for the few
groups that are shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.engine import start
from streameval.evaluation import evaluate, explain
from streameval.evaluation.attribution.run import Run, checked_options
from streameval.evaluation.attribution.shortfalls import of_slices, with_slices
from streameval.options import command
from streameval.options.gathered import gathered

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from streameval.evaluation.attributed import Attribution
    from streameval.evaluation.forecast import Forecast

__all__ = ["attribute", "forecasts"]

_ENGINE = ("memory", "spill", "threads", "client", "scheduler_timeout", "progress")


def _attributed(data: Any, given: Mapping[str, Any]) -> Attribution:
    """`attribute`, with all options."""
    options = checked_options({name: value for name, value in given.items() if name != "progress"})
    run = {name: given[name] for name in _ENGINE}
    clustered = given["cluster"] and (options["classes"] or given["label"])
    found = _of_clusters(data, options, run) if clustered else None
    if found is not None and not options["by"]:
        return found
    sliced = evaluate(data, **of_slices({**options, **run}))
    made = with_slices(
        found, sliced, options, lambda level: [one.own.scalar_with(level) for one in sliced.slice_estimates]
    )
    asked = {**options, "classes": given["classes"]}  # an earlier clustering takes their place
    told = command("attribute", made.source.data, asked) if made.source.command else ""
    return replace(made, source=replace(made.source, command=told))


def forecasts(data: Any, **given: Any) -> list[Forecast]:
    """What `attribute` would do with the same arguments, a pass over the data each: only footers are read.

    Raises
    ------
    StreamevalError
        What `attribute` raises before it reads the data.
    """
    options = checked_options(given)
    found = []
    if given.get("cluster") and (options["classes"] or given.get("label")):
        engine = start(**{name: given[name] for name in _ENGINE if name in given})
        found.append(Run.of(data, options, engine).forecast())
    if options["by"]:
        found.append(explain(data, **of_slices(options)))
    return found


@gathered(_attributed)
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
    """Name the clusters and classes that cost a clustering its score, and say exactly how much each costs.

    Parameters
    ----------
    data : see `streameval.evaluate`
    cluster : str, optional
        The cluster column.
    score : str, optional
        A score column, for the slices that fall short.
    by : str or sequence of str, optional
        Slicing columns, as in `streameval.evaluate`: slices are ranked by how far they fall short of the whole, times
        their rows. Slices with fewer than 20 positives or negatives are left out. The label is `label`, or the column
        ``label``. Data are read once more.
    ci, unit : optional
        Sampling intervals of the slices, as in `streameval.evaluate`. They are widened for having been selected: those
        of R slices out of m that could be are at level 1 − R (1 − ci) / m, so that of the intervals shown a share of
        1 − ci at most is wrong (false coverage rate). With `unit`, 20 effective units are needed.
    classes : str, optional
        Column of the clusters' true classes, for the worst merges and splits.
    changed_from : str, optional
        Column of an earlier clustering in place of classes: which clusters were merged and split since.
    label : str, optional
        Column of labels, for the clusters that take most away from the area under the lift curve.
    pos_label : bool, int, float or str, optional
        See `streameval.evaluate`.
    metric : str, optional
        The metric of the gains: `adjusted_rand_index` (the default), `pairwise.precision`, `pairwise.recall`,
        `pairwise.fscore`, `bcubed_precision`, `bcubed_recall` or `bcubed_fscore`. Groups are ranked by their pairs,
        whatever the metric. With `by`, the metric of the slices (`roc_auc` by default) if it is none of these.
    aul_threshold : float
        Clusters larger than this count as if all positive in the assumed height of `aul`; at least 1.
    top : int
        Clusters and classes to find for each table, at most 1,000,000. Equal costs are ranked by id.
    examples : str, optional
        A column of texts, numbers or times. Up to `examples_per` of its distinct values are added, in a column
        `examples`, for each of the largest cells shown, and for the negatives and positives of impure clusters. They
        are chosen by a hash of the value. Data are read once more.
    examples_per : int
        Examples of each cell, at most.
    nulls, unlabelled, cluster_scope, where, memory, spill, on_error, delta_version, threads, client,
    scheduler_timeout, progress
        See `streameval.evaluate`. If ids belong to their partition, a column `partition` follows them.

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
    raise NotImplementedError  # never called: `gathered` hands all options to `_attributed`


def _of_clusters(data: Any, options: Mapping[str, Any], run: Mapping[str, Any]) -> Attribution:
    """What clusters and classes cost; `run` are the options of the engine."""
    engine = start(**run)
    try:
        return Run.of(data, options, engine).finish()
    except BaseException:
        engine.progress.cancel()
        raise
