"""Evaluate: plan, fold, finalize. The main job.

The arguments become a set of specs (what to count) and metrics (what to compute from the counts). One pass over the
data folds every spec; then the states are finalized shard by shard.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval import scan
from streameval._version import __version__
from streameval.errors import LabelError, MissingInputError, OptionError, SpillError, WeightError
from streameval.fold import Folded, Plan, fold, merge, run_capacity, tasks
from streameval.metrics.contingency_results import contingency_results
from streameval.metrics.curves import ScorePath, lift_curve, score_curve
from streameval.metrics.finalize import combine, partials
from streameval.metrics.lift import Aul
from streameval.metrics.threshold import confusion_at
from streameval.reduce import Progress, run, thread_count, tree
from streameval.request import Request, columns, numbers, texts
from streameval.sampling import Sampling, task_threads
from streameval.states.clusters import SizeTable
from streameval.states.labels import LabelCounts, LabelSpec
from streameval.states.memory import Budget, available_memory, parse_bytes, spill_directory
from streameval.states.sampled import DigestsSpec
from streameval.states.sampled_bins import BinsSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from streameval.metrics.confusion import ConfusionMatrix2
    from streameval.metrics.protocol import Metric
    from streameval.request import Wanted
    from streameval.results import Curve, Scalar

__all__ = ["Evaluation", "evaluate"]

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}  # Arrow cannot filter views
_WEIGHTS = 1e-300, 1e300  # products of the two classes' weights that leave room for a metric
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

    def __reduce__(self) -> tuple[type[Evaluation], tuple[Any, ...]]:
        """Carry the results to another process, not the states: curves must be drawn before."""
        return Evaluation, (self.rows, self.positives, self.results, self.dropped, self.skipped)

    def __str__(self) -> str:
        from streameval.report import text

        return text(self)

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
        """Ends of the interval that is certain to hold the exact value.

        A sampled value (one with a `stderr`) is the exception: its interval is about the sample, see
        `streameval.metrics.sampled`.
        """
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
    (0.75, 1.0)
    """
    named = columns(label=label, classes=classes, weight=weight)
    if named["label"] is None:
        msg = f"label={label!r} must be the name of a column"
        raise OptionError(msg)
    options = Sampling(sample, quantiles, sample_by, passes, sample_seed)
    if not approx_agc and options != Sampling():
        msg = "sample, quantiles, sample_by, sample_seed and passes are options of approx_agc=True (--approx-agc)"
        raise OptionError(msg)
    request = Request(
        LabelSpec(named["label"], pos_label, nulls),
        texts("score", score),
        texts("cluster", cluster),
        named["classes"],
        named["weight"],
        texts("metrics", metrics),
        numbers("truncate", truncate),
        texts("at", at),
        threshold,
        nan,
        nulls,
        cluster_scope,
        on_error,
        approx,
        options if approx_agc else None,
    )
    threads = thread_count(threads)
    found = scan.plan(data, request.columns, on_error=on_error, threads=threads)
    schema = pa.schema([field.with_type(_VIEWS.get(field.type, field.type)) for field in found.schema])
    found = replace(found, schema=schema)
    wanted = request.wanted(found)
    if not spill_directory(spill).is_dir():
        raise SpillError(
            errno.ENOENT,
            "the spill directory is not there; name another with --spill or raise --memory",
            str(spill_directory(spill)),
        )
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
        request.label,
        request.weight,
        tuple({w.spec: None for w in wanted}),
        on_error == "skip",
    )
    try:
        read = partial(context.read, capacity=run_capacity(limit, threads, len(plan.specs)))
        if not request.sampling:
            return _evaluated(found, plan, wanted, context, read(found.pieces, found.rows, plan))
        folded, made = request.sampling.fold(
            found, plan, {w.spec: w.metrics for w in wanted if w.group == "sample"}, read
        )
        final = [replace(w, spec=made[w.spec][0], metrics=made[w.spec][1]) if w.spec in made else w for w in wanted]
        return _evaluated(found, plan, final, context, folded)
    except BaseException:
        context.progress.cancel()
        raise


def _evaluated(found: scan.Scan, plan: Plan, wanted: Sequence[Wanted], context: _Run, folded: Folded) -> Evaluation:
    """Finalize what was folded, and put the results together."""
    labels: LabelCounts = folded.states[plan.label]
    try:
        labels.check()
    except LabelError as error:
        several = len({piece.name for piece in found.pieces}) > 1
        msg = f"{found.pieces[0].name}{' and the other files' * several}: {error}"
        raise LabelError(msg) from None
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
    for state, w in zip(states, wanted, strict=True):
        _check_weights(state, w, plan.weight)
    absent = not labels.pos and plan.label.pos_label is not None
    reason = f"no row has the label {plan.label.pos_label!r}"
    results = [
        replace(
            value, of=w.of, rows=rows, positives=positives, reason=reason if absent and value.reason else value.reason
        )
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


def _check_weights(state: Any, wanted: Wanted, weight: str | None) -> None:
    """Raise if the weights of a score are so small or large together that their products are no float64."""
    if wanted.group == "score" and weight is not None:
        neg, pos = state.totals().neg_weight, state.totals().pos_weight
        if neg and pos and not _WEIGHTS[0] < neg * pos < _WEIGHTS[1]:
            msg = f"weight column {weight!r} sums to {neg:g} and {pos:g}, too far from 1 to multiply; scale the weights"
            raise WeightError(msg)


def _dropped(state: Any, wanted: Wanted) -> tuple[str, int]:
    """Rows that a state left out, and why."""
    if wanted.group in ("score", "sample"):
        return f"NaN or null score {wanted.of}", int(state.nan_rows.sum()) if wanted.spec.nan == "drop" else 0
    if wanted.group == "classes":  # rows without a cluster are those of the cluster column's own state
        return f"null class {wanted.spec.classes} (with {wanted.of})", int(state.dropped_rows[1])
    return f"null cluster {wanted.of}", int(state.dropped_rows.sum())


def _evaluated_rows(state: Any, wanted: Wanted) -> tuple[int, int]:
    """Rows and positives that a state's metrics were computed from."""
    total = state.totals()
    if wanted.group == "score" and wanted.spec.nan == "half":
        return total.rows + int(state.nan_rows.sum()), total.pos + int(state.nan_rows[1])
    return total.rows, total.pos
