"""Evaluate: plan, fold, finalize. The main job.

The arguments become a set of specs (what to count) and metrics (what to compute from the counts). One pass over the
data folds every spec; then the states are finalized shard by shard.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval import scan
from streameval._version import __version__
from streameval.errors import MissingInputError, OptionError
from streameval.fold import Folded, Plan, fold, merge, run_capacity, tasks
from streameval.metrics import GAIN, LIFT, RANKING
from streameval.metrics.contingency_results import asked_for, contingency_results
from streameval.metrics.curves import ScorePath, lift_curve, score_curve
from streameval.metrics.finalize import combine, partials
from streameval.metrics.gain import truncated
from streameval.metrics.lift import Aul
from streameval.metrics.operating import operating_points
from streameval.metrics.threshold import confusion_at
from streameval.reduce import Progress, run, thread_count, tree
from streameval.sampling import Sampling, task_threads
from streameval.states.clusters import ClusterSpec, SizeTable, id_type
from streameval.states.contingency import ContingencySpec
from streameval.states.histogram import HistogramSpec
from streameval.states.labels import LabelCounts, LabelSpec
from streameval.states.memory import Budget, available_memory, parse_bytes
from streameval.states.sampled import DigestsSpec
from streameval.states.sampled_bins import BinsSpec
from streameval.states.scores import ScoreSpec, score_type

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from streameval.metrics.confusion import ConfusionMatrix2
    from streameval.metrics.protocol import Metric
    from streameval.results import Curve, Scalar

__all__ = ["Evaluation", "evaluate"]

_CHOICES = {
    "nan": ("error", "drop", "half"),
    "nulls": ("error", "drop", "singleton"),
    "cluster_scope": ("global", "partition"),
    "on_error": ("raise", "skip"),
}
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}  # Arrow cannot filter views
_STATE_SHARE = 0.6  # of the memory budget; the rest is for builders and for shards being finalized


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes
    ----------
    rows, positives : rows evaluated, and how many of them are positive
    results : tuple of Scalar
    dropped : tuple of (reason, rows) left out
    skipped : tuple of (file, reason) left out

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
    >>> result = evaluate(data, score="score")
    >>> result.value("roc_auc"), result.interval("roc_auc")
    (0.75, (0.75, 0.75))
    """

    rows: int
    positives: int
    results: tuple[Scalar, ...]
    dropped: tuple[tuple[str, int], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    _states: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False, compare=False)
    _run: _Run | None = field(default=None, repr=False, compare=False)

    def _find(self, metric: str, of: str | None) -> Scalar:
        found = [r for r in self.results if r.metric == metric and of in (None, r.of)]
        if len(found) == 1:
            return found[0]
        have = ", ".join(sorted({f"{r.metric} of {r.of}" for r in self.results}))
        problem = (
            "was not computed"
            if not found
            else f"was computed of {', '.join(str(r.of) for r in found)}; say which with of="
        )
        msg = (
            f"{metric}{f' of {of}' if of else ''} {problem}; there are: {have}" if not found else f"{metric} {problem}"
        )
        raise OptionError(msg)

    def value(self, metric: str, of: str | None = None) -> float:
        """Value of a metric; `of` names the score or cluster column where there are several.

        Raises
        ------
        OptionError
            If it was not computed, or `of` is needed.
        """
        return self._find(metric, of).value

    def interval(self, metric: str, of: str | None = None) -> tuple[float, float]:
        """Ends of the interval that is certain to hold the exact value."""
        result = self._find(metric, of)
        return result.lower, result.upper

    def curve(self, name: str, of: str | None = None) -> Curve:
        """A curve for drawing: ``roc``, ``precision_recall``, ``gain`` of a score, ``lift`` of a cluster column.

        At most 10,000 points; the area is that of the whole curve. The states of the evaluation are read once more.

        Raises
        ------
        OptionError
            If there is no such curve, or `of` is needed, or the curve is not defined.
        """
        kind = {"roc": "score", "precision_recall": "score", "gain": "score", "lift": "cluster"}.get(name)
        if kind is None:
            msg = f"there is no curve {name!r}; there are roc, precision_recall, gain, lift"
            raise OptionError(msg)
        columns = [column for group, column in self._states if group == kind and of in (None, column)]
        if len(columns) != 1 or self._run is None:
            have = ", ".join(column for group, column in self._states if group == kind) or "none"
            msg = f"name the {kind} column of the {name} curve with of=; there are: {have}"
            raise OptionError(msg)
        state = self._states[kind, columns[0]]
        if kind == "score":
            [path] = self._run.finalize([(state, [ScorePath()])])[0]
            return score_curve(name, path, state)
        table = SizeTable.union(part for shard in state.shards() for part in state.parts(shard, self._run.budget))
        area = Aul(self._run.threshold).combine([table], state)
        return lift_curve(table, self._run.threshold, area.value, columns[0])

    def confusion(self, threshold: float, of: str | None = None) -> ConfusionMatrix2:
        """The 2×2 table of a score, with its measures: scores at or above the threshold are taken as positive.

        Exact; the states of the evaluation are read once more. Under ``approx`` only where the threshold lies between
        two bins of the histogram.

        Raises
        ------
        OptionError
            If `of` is needed, or the threshold is within a bin.

        Examples
        --------
        >>> import pyarrow as pa
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score").confusion(0.4)
        ConfusionMatrix2(rows=[[1, 1], [1, 1]])
        """
        columns = [column for group, column in self._states if group == "score" and of in (None, column)]
        if len(columns) != 1 or self._run is None:
            have = ", ".join(column for group, column in self._states if group == "score") or "none"
            msg = f"name the score column of the table with of=; there are: {have}"
            raise OptionError(msg)
        return confusion_at(self._states["score", columns[0]], threshold, self._run.budget)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the command line's JSON has them."""
        return {
            "streameval": __version__,
            "rows": self.rows,
            "positives": self.positives,
            "results": [result.to_dict() for result in self.results],
            "dropped": [{"reason": reason, "rows": rows} for reason, rows in self.dropped],
            "skipped": [{"partition": name, "reason": reason} for name, reason in self.skipped],
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_arrow(self) -> pa.Table:
        """One row a result."""
        rows = [result.to_dict() for result in self.results]
        names = [
            "metric",
            "of",
            "value",
            "lower",
            "upper",
            "exact",
            "rows",
            "positives",
            "reason",
            "stderr",
            "threshold",
        ]
        floats = {"value", "lower", "upper", "stderr", "threshold"}
        kinds = {"exact": pa.bool_(), "rows": pa.int64(), "positives": pa.int64()}
        columns = {
            name: pa.array(
                [None if row.get(name) is None else float(row[name]) if name in floats else row[name] for row in rows],
                pa.float64() if name in floats else kinds.get(name, pa.string()),
            )
            for name in names
        }
        return pa.table(columns)


@dataclass(frozen=True)
class _Run:
    """What every step of one evaluation shares."""

    budget: Budget
    threads: int
    progress: Progress
    threshold: float = 1
    begin: Callable[[int], object] = bool

    def read(self, pieces: Sequence[scan.Piece], rows: int, plan: Plan, *, capacity: int) -> Folded:
        """One pass over the pieces: fold tasks, and merge their states as a tree."""
        self.begin(rows)
        sampled = any(isinstance(spec, DigestsSpec | BinsSpec) for spec in plan.specs)
        threads = task_threads(rows) if sampled else self.threads
        work = tasks(pieces, rows, threads, by_file=plan.skip, whole=plan.whole)
        one = partial(fold, plan=plan, budget=self.budget, capacity=capacity, progress=self.progress)
        folded = tree(one, work, merge, "fold", self.threads)
        self.budget.settle()
        return folded

    def each(self, function: Callable[[Any], Any], items: Sequence[Any], name: str) -> list[Any]:
        """Map over shards."""

        def one(item: Any) -> Any:
            self.progress(0)
            return function(item)

        return run(one, items, name, self.threads)

    def finalize(self, wanted: Sequence[tuple[Any, Sequence[Metric]]]) -> list[list[Any]]:
        """Results of several states, all their shards side by side."""
        work = [(i, shard) for i, (state, _) in enumerate(wanted) for shard in state.shards()]

        def one(item: tuple[int, tuple[int, int]]) -> list[list[Any]]:
            self.progress(0)
            i, shard = item
            return partials(wanted[i][0], shard, wanted[i][1], self.budget)

        found = run(one, work, "finalize", self.threads)
        return [
            combine(state, metrics, [part for (j, _), part in zip(work, found, strict=True) if j == i])
            for i, (state, metrics) in enumerate(wanted)
        ]


@dataclass(frozen=True)
class _Wanted:
    """A state to build, the metrics of it, and what they are `of`."""

    group: str
    of: str
    spec: Any
    metrics: tuple[Any, ...]


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Column names, each once."""
    return tuple(dict.fromkeys([given] if isinstance(given, str) else given or ()))


def _tuple(given: Any) -> tuple[Any, ...]:
    """One thing or several, as a tuple."""
    return (given,) if isinstance(given, str | int | float) else tuple(given)


def _check_options(options: dict[str, Any]) -> None:
    for name, allowed in _CHOICES.items():
        if options[name] not in allowed:
            msg = f"{name}={options[name]!r} must be one of {', '.join(allowed)}"
            raise OptionError(msg)


def _sampling(asked: bool, scores: tuple[str, ...], options: Sampling) -> Sampling | None:
    """The options of the approximate areas, if these are asked for; options without them are refused."""
    if asked and not scores:
        msg = "agc_approx is an area of a score: name a score column (--score)"
        raise OptionError(msg)
    if not asked and options != Sampling():
        msg = "sample, quantiles, sample_by, sample_seed and passes are options of approx_agc=True (--approx-agc)"
        raise OptionError(msg)
    return options if asked else None


def _chosen(metrics: Iterable[Metric], patterns: tuple[str, ...]) -> tuple[Metric, ...]:
    """The metrics that a pattern names, or all."""
    return tuple(m for m in metrics if not patterns or any(fnmatchcase(m.name, pattern) for pattern in patterns))


def _check_patterns(patterns: tuple[str, ...], catalogue: Sequence[Metric]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(metric.name, pattern) for metric in catalogue):
            have = ", ".join(metric.name for metric in catalogue)
            msg = f"no metric is named {pattern!r}; there are: {have}"
            raise OptionError(msg)


def evaluate(
    data: Any,
    *,
    label: str = "label",
    score: str | Sequence[str] | None = None,
    cluster: str | Sequence[str] | None = None,
    classes: str | None = None,
    weight: str | None = None,
    pos_label: bool | int | float | str | None = None,
    metrics: str | Sequence[str] | None = None,
    truncate: float | Sequence[float] = (),
    threshold: float = 1,
    at: str | Sequence[str] = (),
    nan: str = "error",
    nulls: str = "error",
    cluster_scope: str = "global",
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
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluate scores and clusters in one pass over data of any size.

    Parameters
    ----------
    data : path, glob, URI, list of those, pyarrow Dataset, Table, RecordBatch or reader, or pandas DataFrame
        What to read; a directory may be Hive-partitioned.
    label : str
        Column of true classes: bool, number, or string with `pos_label`.
    score, cluster : str or sequence of str
        Columns of scores (any number type) and of cluster ids (integers, strings, binaries).
    classes : str, optional
        Column of true classes of the clusters, such as campaigns (integers, strings, binaries): every cluster column is
        compared with it.
    weight : str, optional
        Column of weights, finite and not negative. They apply to score metrics; cluster metrics count rows.
    pos_label : optional
        The positive label; without it numbers above zero are positive.
    metrics : str or sequence of str, optional
        Names or globs of the metrics to compute; by default all but those of clusters against classes that are
        computed only when asked for, such as ``assignment_score``, ``vi_distance/raw`` or ``pairwise.*``.
    truncate : float or sequence of float
        Truncations of the gain curve: a share of the points in (0, 1], or a number of points above 1. Each adds `agc`
        and `agc_ratio` cut there, such as ``agc@0.01``.
    threshold : float
        Clusters larger than this count as if all positive in the assumed height of `aul`.
    at : str or sequence of str
        Operating points: ``fpr=1e-4`` (the true positive rate there), ``recall=0.9`` (the precision there), ``k=1000``
        (the precision among the top k), each with its threshold.
    nan : {"error", "drop", "half"}
        NaN and null scores: refuse them; leave the row out of that score's metrics; or count every pair with a NaN as
        one half in `roc_auc` and untruncated `agc` (other metrics of that score are then undefined).
    nulls : {"error", "drop", "singleton"}
        Null ids of clusters and classes: refuse them; leave the row out of their metrics; or take each as one of its
        own. With ``drop``, rows without a label leave every metric.
    cluster_scope : {"global", "partition"}
        Whether an id means the same cluster everywhere, or belongs to its partition.
    approx : bool
        Hold a fixed histogram (16 MiB a score) instead of every distinct score; results are certain intervals.
    approx_agc : bool
        Add `agc_approx`, and one for each truncation, such as ``agc_approx@0.01``: areas from a sample of the rows in
        quantile bins, with the bounds of the bins and the standard error (`streameval.metrics.sampled`). With
        ``metrics="agc_approx*"`` nothing else is computed, which is what makes it fast.
    sample : float
        Share of the rows to draw for it, in (0, 1].
    quantiles : int
        Number of its bins, for each truncation.
    sample_by : {"rows", "row_groups"}
        Whether rows are drawn, or whole row groups: then no others are read for it, but the error is larger where rows
        of a row group are alike.
    sample_seed : int
        Another one draws another sample.
    passes : {1, 2}, optional
        How often the data are read for it; by default a second time only where scores repeat so often that digests of
        the first pass would be poor (`streameval.sampling`).
    memory : int or str, optional
        Budget for states, such as ``"2GiB"``; a quarter of the memory by default. What exceeds it is spilled.
    spill : path, optional
        Directory of the spill file, by default ``$TMPDIR`` or ``/var/tmp``.
    on_error : {"raise", "skip"}
        Whether a file that cannot be read ends the run or is left out and listed.
    threads : int, optional
        By default as many as processors.
    progress : callable, optional
        Called with (rows folded, rows in all); the latter is −1 if unknown.

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
    (0.75, 0.875)
    """
    _check_options({"nan": nan, "nulls": nulls, "cluster_scope": cluster_scope, "on_error": on_error})
    scores, clusters, patterns = _names(score), _names(cluster), _names(metrics)
    if not scores and not clusters:
        msg = "nothing to evaluate: name a score or a cluster column (--score, --cluster)"
        raise OptionError(msg)
    if classes is not None and not clusters:
        msg = f"classes={classes!r} is compared with clusters: name a cluster column (--cluster)"
        raise OptionError(msg)
    lift = tuple(replace(m, threshold=threshold) if isinstance(m, Aul) else m for m in LIFT)
    cut, points = truncated(_tuple(truncate)), operating_points(_tuple(at))
    of_scores: tuple[Metric, ...] = (*RANKING, *GAIN)
    sampling = _sampling(approx_agc, scores, Sampling(sample, quantiles, sample_by, passes, sample_seed))
    areas: tuple[Metric, ...] = sampling.metrics(_tuple(truncate)) if sampling else ()
    asked: tuple[Metric, ...] = (*(_chosen(cut, patterns) if areas else cut), *points)
    known = (*((*of_scores, *cut, *points, *areas) if scores else ()), *(lift if clusters else ()))
    if classes is None:
        _check_patterns(patterns, known)
    of_classes = () if classes is None else asked_for(patterns, [metric.name for metric in known])
    of_score = tuple(dict.fromkeys((*_chosen(of_scores, patterns), *asked)))
    threads = thread_count(threads)
    columns = dict.fromkeys((label, *scores, *clusters, *(name for name in (classes, weight) if name)))
    found = scan.plan(data, list(columns), on_error=on_error, threads=threads)
    found = replace(
        found, schema=pa.schema([field.with_type(_VIEWS.get(field.type, field.type)) for field in found.schema])
    )

    def type_of(column: str) -> pa.DataType:
        return found.schema.field(column).type

    score_spec = HistogramSpec if approx else ScoreSpec
    wanted = [
        _Wanted("score", name, score_spec(name, score_type(type_of(name), name), weight is not None, nan), of_score)
        for name in scores
        if of_score or not areas
    ] + [
        _Wanted(
            "cluster",
            name,
            ClusterSpec(name, id_type(type_of(name), name), cluster_scope, nulls),
            _chosen(lift, patterns),
        )
        for name in clusters
    ]
    if sampling:
        sampling.check(found, weight)
        areas = _chosen(areas, patterns) or areas
        wanted += [
            _Wanted("sample", name, sampling.spec(name, score_type(type_of(name), name), nan), areas) for name in scores
        ]
    if classes is not None and of_classes:
        class_type = id_type(type_of(classes), classes)
        wanted += [
            _Wanted(
                "classes",
                name,
                ContingencySpec(classes, name, class_type, w.spec.type, cluster_scope, nulls),
                of_classes,
            )
            for w in wanted
            if w.group == "cluster"
            for name in (w.of,)
        ]
    limit = available_memory() // 4 if memory is None else parse_bytes(memory)
    seen = total = 0

    def report(rows: int) -> None:
        nonlocal seen
        seen += rows
        if progress is not None:
            progress(seen, total)

    def begin(rows: int) -> None:
        nonlocal total
        total = total + rows if min(total, rows) >= 0 else -1

    context = _Run(Budget(int(limit * _STATE_SHARE), spill), threads, Progress(report), threshold, begin)
    plan = Plan(
        found.schema,
        LabelSpec(label, pos_label, nulls),
        weight,
        tuple({w.spec: None for w in wanted}),
        on_error == "skip",
    )
    try:
        read = partial(context.read, capacity=run_capacity(limit, threads, len(plan.specs)))
        if not sampling:
            return _evaluated(found, plan, wanted, context, read(found.pieces, found.rows, plan))
        folded, made = sampling.fold(found, plan, {w.spec: w.metrics for w in wanted if w.group == "sample"}, read)
        final = [replace(w, spec=made[w.spec][0], metrics=made[w.spec][1]) if w.spec in made else w for w in wanted]
        return _evaluated(found, plan, final, context, folded)
    except BaseException:
        context.progress.cancel()
        raise


def _evaluated(found: scan.Scan, plan: Plan, wanted: Sequence[_Wanted], context: _Run, folded: Folded) -> Evaluation:
    """Finalize what was folded, and put the results together."""
    labels: LabelCounts = folded.states[plan.label]
    labels.check()
    skipped = (*found.skipped, *folded.skipped)
    if not labels.totals().rows and not labels.null:
        reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        msg = f"there are no rows to evaluate{reason}"
        raise MissingInputError(msg)
    states = [folded.states[w.spec] for w in wanted]
    plain = sum(w.group != "classes" for w in wanted)  # they come first
    values = context.finalize([(state, w.metrics) for state, w in zip(states[:plain], wanted, strict=False)])
    for state, w in zip(states[plain:], wanted[plain:], strict=True):
        values.append(contingency_results(state, w.metrics, context.budget, context.each))
        context.budget.settle()
    results = [
        replace(value, of=w.of, rows=rows, positives=positives)
        for w, state, row in zip(wanted, states, values, strict=True)
        for rows, positives in [_evaluated_rows(state, w)]
        for value in row
    ]
    dropped = [("null label", labels.null), *(_dropped(state, w) for state, w in zip(states, wanted, strict=True))]
    return Evaluation(
        labels.neg + labels.pos,
        labels.pos,
        tuple(results),
        tuple((reason, rows) for reason, rows in dict(reversed(dropped)).items() if rows)[::-1],
        tuple(skipped),
        {(w.group, w.of): state for w, state in zip(wanted, states, strict=True)},
        context,
    )


def _dropped(state: Any, wanted: _Wanted) -> tuple[str, int]:
    """Rows that a state left out, and why."""
    if wanted.group in ("score", "sample"):
        return f"NaN or null score {wanted.of}", int(state.nan_rows.sum()) if wanted.spec.nan == "drop" else 0
    if wanted.group == "classes":  # rows without a cluster are those of the cluster column's own state
        return f"null class {wanted.spec.classes} (with {wanted.of})", int(state.dropped_rows[1])
    return f"null cluster {wanted.of}", int(state.dropped_rows.sum())


def _evaluated_rows(state: Any, wanted: _Wanted) -> tuple[int, int]:
    """Rows and positives that a state's metrics were computed from."""
    total = state.totals()
    if wanted.group == "score" and wanted.spec.nan == "half":
        return total.rows + int(state.nan_rows.sum()), total.pos + int(state.nan_rows[1])
    return total.rows, total.pos
