"""Attribute: the clusters, classes and slices that cost most, and how much each costs.

One pass folds the same states as `evaluate`. One sweep over their cells finds the costliest groups in bounded memory,
and another one their largest cells. Texts of hashed ids and examples take one more scan of the data, for the groups
that are shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.engine import start
from streameval.evaluation import evaluate, explain
from streameval.evaluation.attribution.run import Run, checked_options
from streameval.evaluation.attribution.shortfalls import of_slices, with_slices
from streameval.evaluation.files import RUN_OPTIONS
from streameval.options import command

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from streameval.evaluation.costs.attributed import Attribution
    from streameval.evaluation.files import Forecast


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
