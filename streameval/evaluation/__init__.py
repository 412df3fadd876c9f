"""Evaluate: plan, fold, finalize.

The arguments determine specs (what to count) and metrics (what to compute from the counts). One pass over the data
folds the states of all specs; then the states are finalized shard by shard.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval._submodules import import_when_named
from streameval.evaluation.files import Files, Forecast, source_of
from streameval.evaluation.finalize import finalize_all
from streameval.evaluation.multiclass import expand_classes
from streameval.evaluation.request import Request
from streameval.options import record_options
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    import pyarrow.compute as pc

    from streameval.evaluation.result import Evaluation
    from streameval.metrics.protocol import UserMetric

__all__ = ["evaluate", "explain"]


@explains_arguments
def evaluate(
    data: object,
    *,
    label: str = "label",
    score: str | Sequence[str] | Mapping[Any, str] | None = None,
    cluster: str | Sequence[str] | None = None,
    sketch: str | Sequence[str] | None = None,
    classes: str | None = None,
    weight: str | None = None,
    pos_label: bool | int | float | str | None = None,
    classes_of_label: str | Sequence[str] | None = None,
    metrics: str | UserMetric | Sequence[str | UserMetric] | None = None,
    truncate: float | Sequence[float] | Mapping[str, float | Sequence[float]] = (),
    aul_threshold: float | Mapping[str, float] = 1,
    assignment_cells: int = 1_000_000,
    at: str | Sequence[str] = (),
    clip: float | None = None,
    nan: str | Mapping[str, str] = "error",
    nulls: str | Mapping[str, str] = "error",
    unlabelled: str = "error",
    labels: Any = None,
    on: str | Sequence[str] | None = None,
    label_time: str | None = None,
    labels_as_of: str | date | None = None,
    label_conflicts: str = "error",
    rejects: str | os.PathLike[str] | None = None,
    allow_unmatched: bool = False,
    sampled_by: str | None = None,
    label_probability: str | None = None,
    classes_sampled: str | None = None,
    clusters_sampled: str | None = None,
    cluster_scope: str = "global",
    common_rows: bool = False,
    where: str | pc.Expression | None = None,
    by: str | Sequence[str] | None = None,
    timezone: str | None = None,
    mean_over: str | None = None,
    mean_weight: str = "rows",
    max_slices: int = 10_000,
    ci: float | None = None,
    unit: str | Sequence[str] | None = None,
    baseline: str | Sequence[str] | None = None,
    against: str | None = None,
    resample_bins: str | int = "2048",
    approx: bool = False,
    approx_agc: bool = False,
    sample: float = 1.0,
    quantiles: int = 100,
    sample_by: str = "rows",
    sample_seed: int = 0,
    passes: int | None = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    delta_version: int | None = None,
    snapshot: int | None = None,
    threads: int | None = None,
    client: object = None,
    scheduler_timeout: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluate scores and clusters in one pass over data of any size.

    `truncate`, `aul_threshold`, `nan` and `nulls` also take a mapping from columns to values, such as
    ``nan={"score_nb": "drop"}``; other columns have the value under ``"*"``, or the default.

    Parameters
    ----------
    data : path, glob, URI, list of those, pyarrow Dataset, Table, RecordBatch or reader, pandas or Dask DataFrame
        What to read. A directory may be Hive-partitioned. A list of delayed Arrow tables is accepted as well.
    label : str
        Column of true classes: booleans, numbers, or strings with `pos_label`. The default is read only if a metric
        needs labels: clusters against classes and sketches do not.
    score, cluster : str or sequence of str
        Columns of scores (any numeric type) and of cluster ids (integers, strings, binaries).
    sketch : str or sequence of str, optional
        Columns of numbers, scores or others, whose quantiles are estimated, such as ``quantile@0.5``
        (`streameval.metrics.curves`). Every row counts once; labels and weights are ignored.
    classes : str, optional
        Column of the clusters' true classes, such as campaigns (integers, strings, binaries). Every cluster column is
        compared with it.
    weight : str, optional
        Column of weights, finite and not negative. Weights apply to score metrics; cluster metrics count rows.
    pos_label : bool, int, float or str, optional
        The positive label. Without it, numbers above zero are positive.
    classes_of_label : str or sequence of str, optional
        Several classes, one against the rest, in one pass: the class of each score column, in their order. Instead,
        `score` may map classes to columns, such as ``{"spam": "p_spam", "scam": "p_scam"}``, or be a pattern,
        ``"p_{class}"``; `classes_of_label` then selects classes, by default all that have a column. Results have the
        class in `label_class`, and ``macro``, ``weighted`` and ``micro`` averages (`streameval.evaluation.multiclass`).
    metrics : str, metric object, or sequence of those
        Names, globs and families of the metrics to compute, or your own metric objects
        (`streameval.metrics.catalogue`). By default, all metrics are computed except the optional ones of clusters
        against classes, such as ``assignment_score``, ``vi_distance/raw`` or ``pairwise.*``.
    truncate : float or sequence of float
        Truncations of the gain curve: a share of the points in (0, 1], or a number of points above 1, counted without
        weights. Each adds `agc` and `agc_ratio` cut there, such as ``agc@0.01``.
    aul_threshold : float
        Clusters larger than this count as if all positive in the assumed height of `aul`.
    assignment_cells : int
        For `assignment_score`: a connected component of the table with more cells is bounded instead of solved, and
        the result is a certain interval. The limit does not depend on `memory`.
    at : str or sequence of str
        Operating points, each with its threshold: ``fpr=1e-4`` (the true positive rate there), ``tpr=0.9`` (the false
        positive rate), ``recall=0.9`` (the precision), ``precision=0.95`` (the recall), ``k=1000`` (the precision among
        the top k), ``share=0.01`` (precision, recall and lift of that share of the rows), ``threshold=0.8`` (precision,
        recall, false positive rate and share flagged). Float32 scores are compared with the float32 number
        nearest to a threshold, as NumPy, pandas and `where` do: a score written as 0.9 reaches ``threshold=0.9``.
        Float16 scores count as float32.
    clip : float, optional
        For `log_loss`: scores are moved into [clip, 1 − clip] first, such as 1e-15. Without it, `log_loss` is infinite
        where a score of 0 or 1 is wrong.
    nan : {"error", "drop", "half"}
        NaN and null scores: refuse them; leave the row out of that score's metrics; or count every pair with a NaN as
        one half in `roc_auc`, `gini` and untruncated `agc` (other metrics of that score are then undefined).
    nulls : {"error", "drop", "singleton"}
        Null ids of clusters and classes: refuse them; leave the row out of their metrics; or treat each as a separate
        id.
    unlabelled : {"error", "drop", "size"}
        Rows without a label: refuse them; leave them out of all metrics that need labels, cluster sizes included; or
        count them in the sizes of clusters, and estimate the positives of the clusters of one size as
        rows × positives ÷ labelled rows of that size. Clusters against classes and sketches use all rows in any case.
        With `labels`, ``"size"`` is the default, which leaves unlabelled rows out of the metrics of scores.
    labels : as `data`, optional
        Labels in a table of their own, which may arrive after the scores (`streameval.evaluation.labels.statements`).
        Each row is a statement about an id: the value of the column `label`, null to withdraw it. The latest counts.
        If `data` have the label column as well, it counts as the earliest statement. Labelled rows are rarely a random
        sample: give the inverse of their sampling probability as `weight`, or read the values as those of the labelled
        rows only. They say so: each result that uses labels has ``basis="labelled rows"`` and `labelled_share`.
        The columns `classes` and `unit`, and those of the probabilities of a sample, may be in `labels` as well, in the
        same table or in another one, if `data` lack them. Rows without a class are then in no table of clusters against
        classes, and rows without a unit are each a unit.
    on : str or sequence of str
        The id column of `data` and `labels`; several must all agree; ``"a=b"`` if column ``a`` of `data` is ``b`` in
        `labels`. Ids are integers (decimals without fraction as well), strings, binaries or dates. They are matched by
        value: the integer 7 equals the text "7", not "007", and a UUID its lower-case text. Null ids match nothing. An
        id may have several rows, which all get its label.
    label_time : str, optional
        Column of times in `labels` (timestamps or dates, UTC). Without it, an id must not have different labels.
    labels_as_of : str or date, optional
        Use statements up to this time, or up to the end of this date (UTC).
    label_conflicts : {"error", "latest", "drop"}
        Different labels of an id at one time: refuse them; take that of the file that was named last; or leave the rows
        without a label.
    rejects : path, optional
        A ``.csv`` or ``.parquet`` file for statements that label no row, with a column `reason`: ``no row``,
        ``conflict``, ``null id`` or ``superseded``.
    allow_unmatched : bool
        Accept labels of which none has the id of a row; else that is an error, as `on` probably names a wrong column.
    sampled_by : str, optional
        How the labelled rows were drawn, if labels are a sample: ``"uniform"``, ``"strata=COLUMN"`` (uniform in each
        stratum, which is known for all rows, or follows from the scores and `label_probability` in what `plan_labels`
        wrote) or ``"size"`` (whole units, in proportion to their rows, without replacement; `where` would leave out
        some of these). A null label means not labelled. With `unit`, ``"uniform"`` drew whole units as well. Metrics of
        scores are then estimates of what labels of all rows would give, with a sampling interval and `design`,
        `labelled` and `strata` (`streameval.metrics.scores.label_sample`). Rows labelled because they looked bad have
        no valid estimate.
    label_probability : str, optional
        The same for recorded probabilities: a column with that of each labelled row, above 0 and at most 1.
    classes_sampled : str, optional
        Estimate pairwise, B-cubed and cluster metrics from a sample of classes, drawn ``"uniform"``, by ``"size"`` (in
        proportion to their rows), or with recorded probabilities, which the column of this name has for their rows. All
        rows of a sampled class carry it; all other rows have a null class
        (`streameval.metrics.contingency.class_sample`).
    clusters_sampled : str, optional
        Estimate pairwise and B-cubed precision from a sample of clusters, of which all rows have a class, drawn as
        above. With both samples, precisions are of the clusters, all else is of the classes; each needs the column of
        its probabilities, null outside.
    cluster_scope : {"global", "partition"}
        Whether an id means the same cluster everywhere, or only within its partition.
    common_rows : bool
        Compare columns on their common rows: a row with a NaN or null in one of the scores, or a null id in one of the
        cluster columns, is left out of every metric. `Evaluation.dropped` reports the number of rows left out.
    where : str or pyarrow.compute.Expression, optional
        Filter of the rows: SQL such as ``"country = 'DE' AND n_chars > 5"``, with comparisons of columns with values or
        columns, AND, OR, NOT, IN, BETWEEN, IS NULL and LIKE (a backslash escapes % and _). Files and row groups that
        cannot match are not read. Hive keys are strings. SQL compares a key whose values are all integers (``hour=5``,
        ``hour=10``) with numbers as integers; an expression sees the string.
    by : str or sequence of str, optional
        Evaluate every slice as well, exactly as if its rows were evaluated alone: for each value of a column
        (``"country"``; null is a value), for each combination of values (``"country,channel"``), for parts of a time
        (``"hour(sent_at)"``, also ``day``, ``week``, ``month``), or for numbers between edges (``"length=0,20,80"``).
    timezone : str, optional
        Time zone of parts of times, such as ``"Europe/Berlin"``, by default that of their column; with it, times
        without a zone are UTC, and files may have times of several zones. Results name the zone (`Source.zones`).
    mean_over : str, optional
        Compute score metrics as means over the groups of this column, such as users, instead of from one ranking of all
        rows: `roc_auc` (GAUC), `average_precision` and ``precision@k=N``. Ids are integers, strings or binaries; rows
        with a null id form one group. Groups without both classes are left out; results have the deciles of the values
        of the others (`group_deciles`). The number of groups is not limited (`streameval.metrics.scores.group_means`).
    mean_weight : {"rows", "positives", "equal"}
        Weight of each group in the mean: its rows, its positives, or 1.
    max_slices : int
        Refuse a slicing with more slices than this, as soon as they are found.
    ci : float, optional
        Level of the sampling intervals, such as 0.95. They cover the true value of the population from which the units
        are sampled; those of ``f1_max``, ``max_informedness``, ``average_precision`` of few positives and
        ``adjusted_rand_index`` of few classes that of a biased value (`streameval.metrics.estimates` says by how much).
        `unit`, `baseline` and `against` imply 0.95.
    unit : str or sequence of str, optional
        Column of the sampling units, such as the campaign of a message (integers, strings, binaries; each row with a
        null is a separate unit). Without it each row is a unit, and intervals are too narrow if rows are correlated
        within groups. Rows as units are numbered in the order of their paths, in each Hive directory: intervals depend
        on that order, but not on the names, sizes and number of the files. Two columns, ``"sender,day"``, are crossed
        factors: rows that share either of them depend on each other (`streameval.metrics.estimates`). Such intervals
        are of all rows, without slices and bands of curves. A name with a comma is that of one column in a sequence,
        ``["a,b"]``, or in quotes.
    baseline : str or sequence of str, optional
        Columns with which the other score or cluster columns are compared; `results` then includes the differences.
        Rows without a value in one of the columns are left out, as with `common_rows`.
    against : {"rest"}, optional
        Compare slices with all other rows, paired over the same units: for each slicing, the 100 largest slices.
        `results` then includes the differences, with ``of="score − score (rest)"`` and p-values adjusted for all
        differences by slice (Holm).
    resample_bins : str or int
        Number of score bins in which the blocks of `ci` are counted, from 2 to 65,536, or ``"exact"`` to keep all
        scores of each block, which takes the memory of a second exact state. If the bins are too coarse for an
        interval, it is null, with the reason.
    approx : bool
        Count scores in a fixed histogram (21 MiB per score at most, 42 with weights) instead of keeping every distinct
        score. Each result then has an interval that always contains the exact value.
    approx_agc : bool
        Add `agc_approx`, and one for each truncation, such as ``agc_approx@0.01``: areas from a sample of the rows in
        quantile bins, with a bound on the error of the bins and the standard error of the sample
        (`streameval.metrics.scores.gain`). ``metrics="agc_approx*"`` computes nothing else, which is fast; with
        `ci`, all scores are counted as well.
    sample : float
        Share of the rows to draw for `agc_approx`, in (0, 1].
    quantiles : int
        Number of bins of `agc_approx`, for each truncation.
    sample_by : {"rows", "row_groups"}
        Whether single rows or whole row groups are drawn. Row groups that are not drawn are not read, but the error is
        larger if the rows of a row group are alike.
    sample_seed : int
        Random seed of the sample.
    passes : {1, 2}, optional
        How often the data are read for `agc_approx`. By default they are read twice if scores repeat so often that
        digests of the first pass are inaccurate, or if all rows are drawn, which bounds the exact value (see
        `streameval.evaluation.sampling`).
    memory : int or str, optional
        Budget for states, reading and sorting, such as ``"2GiB"``; by default a quarter of the memory. States beyond it
        are spilled. The memory of the process grows by at most 1.15 times the budget, apart from compiling loops in the
        first run on a machine. If row groups, the tables of many `resample_bins` (208 MiB per score and thread for
        65,536) or compiling need more, a warning states how much (``python -m streameval.warm`` compiles beforehand).
    spill : path, optional
        Directory of the spill file, by default ``$TMPDIR`` or ``/var/tmp``.
    on_error : {"raise", "skip"}
        Whether a file that cannot be read ends the run, or is left out and listed.
    delta_version : int, optional
        Version of the Delta tables among the data, by default the current one.
    snapshot : int, optional
        Id of the snapshot of the Iceberg tables among the data, by default the current one.
    threads : int, optional
        Number of threads in this process, by default one per processor; excludes `client`.
    client : distributed.Client or str, optional
        Run on the workers of this client, or of the scheduler at this address. By default the active client is used if
        there is one and `threads` is not given; inside a Dask task there is none. `memory` is then the budget for the
        tasks of each worker, by default a quarter of its memory limit, and `spill` a directory on its machine. Results
        of finished tasks are held and spilled by Dask within the worker's memory limit.
    scheduler_timeout : float
        Seconds to wait for the scheduler, if `client` is an address, and then for a first worker.
    progress : callable, optional
        Called with (rows folded, total rows); the latter is −1 if unknown.

    Returns
    -------
    Evaluation

    Raises
    ------
    StreamevalError
        See `streameval.errors`; the message names the file, the column and the remedy.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8], "cluster": [7, 8, 9, 9]})
    >>> result = evaluate(data, score="score", cluster="cluster")
    >>> result.value("roc_auc"), result.value("aul")
    (0.75, 1.0)
    """
    options = dict(locals())  # every argument by name
    del options["data"]
    request = Request.checked(expand_classes(data, options))
    files = Files.requested(data, request).labelled(request.late)
    request = replace(request, label=files.plan.label or request.label)
    with files.engine.progress:
        requests, folded = files.states(request)
        found = finalize_all(files.engine, request, files.names, requests, folded)
    zones = request.slicing.timezones(files.scan.schema)
    source = replace(source_of(data, files.scan.pieces, request.options), zones=zones)
    counts = files.deliver_statements(folded)
    counts = found.labels | counts if request.design or not counts else counts
    return replace(found, options=record_options(request.options), source=source, labels=counts)


def explain(data: object, **options: Any) -> Forecast:
    """Forecast what `evaluate` would do with the same arguments, from the footers of the files alone.

    Parameters
    ----------
    data
        As `evaluate`.
    **options
        The keyword arguments of `evaluate`.

    Returns
    -------
    Forecast
        Rows, columns, states, tasks and the memory they need; `str` describes them in words.

    Raises
    ------
    TypeError
        If `evaluate` has no such argument.
    StreamevalError
        What `evaluate` raises before it reads the data: `OptionError`, or a `DataError` of inputs and columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
    >>> print(explain(data, score="score", threads=1))
    4 rows in 1 partition; reads 64 B: label (int64), score (double)
    state  score_counts of score: at most 32 B, 1 shard
    ...
    """
    try:
        inspect.signature(evaluate).bind(data, **options)
    except TypeError as error:
        raise TypeError(f"explain() {error}; its arguments are those of evaluate()") from None
    request = Request.checked(expand_classes(data, options))
    return Files.requested(data, request).forecast(request)


explain.__signature__ = inspect.signature(evaluate)  # type: ignore[attr-defined]  # PEP 362 reads it, typeshed lacks it

import_when_named(__name__)
