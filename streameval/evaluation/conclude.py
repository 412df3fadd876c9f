"""Outcome: states → results. What an evaluation found, and how it is made of what was folded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval._version import __version__
from streameval.arrays.contingency.confusion import ConfusionMatrix2
from streameval.errors import LabelError, MissingInputError, OptionError, WeightError
from streameval.metrics.clusters.lift import Aul
from streameval.metrics.scores.curves import AllSizes, ScorePath, lift_curve, score_curve
from streameval.metrics.scores.ranking import PrAuc, RocAuc
from streameval.metrics.scores.threshold import ConfusionAt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.engine.cluster import ClusterEngine
    from streameval.engine.fold import Folded, Plan
    from streameval.engine.threads import Engine
    from streameval.evaluation.request import MetricRequest
    from streameval.results import Curve, Scalar
    from streameval.states.labels import LabelCounts

__all__ = ["Evaluation", "finalize_all"]

_WEIGHTS = 1e-300, 1e300  # products of the two classes' weights that leave room for a metric


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
    >>> from streameval import evaluate
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
    _engine: Engine | ClusterEngine | None = field(default=None, repr=False, compare=False)
    _threshold: float = field(default=1, repr=False, compare=False)

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

        NaN where the value is not defined, and where it was sampled: then nothing is certain, and the result's `bound`
        and `stderr` say what is likely, see `streameval.metrics.scores.gain_sampled`.
        """
        result = self._find(metric, of)
        return result.lower, result.upper

    def _counts(self, kind: str, of: str | None, what: str) -> tuple[Engine | ClusterEngine, str, Any]:
        """The engine, the one column of a kind that is meant, and its state."""
        have = [column for group, column in self._states if group == kind]
        found = [column for column in have if of in (None, column)]
        if len(found) == 1 and self._engine is not None:
            return self._engine, found[0], self._states[kind, found[0]]
        others = {"score": "sample", "cluster": "classes"}[kind]
        if self._engine is None:
            msg = f"the {what} needs the counts of the run, which stay in its process: take it there"
        elif have:
            msg = f"name the {kind} column of the {what} with of=; there are: {', '.join(have)}"
        elif any(group == others for group, _ in self._states):
            metric = {"score": "roc_auc", "cluster": "aul"}[kind]
            msg = f"there is no {what}, since none of its metrics was asked for: add {metric} to metrics"
        else:
            msg = f"there is no {what}, since no {kind} column was evaluated: name one (--{kind})"
        raise OptionError(msg)

    def curve(self, name: str, of: str | None = None) -> Curve:
        """A curve for drawing: ``roc``, ``precision_recall``, ``gain`` of a score, ``lift`` of a cluster column.

        At most 10,000 points; the area is that of the whole curve, which holds no NaN scores, whatever `nan` says. The
        states of the evaluation are read once more.

        Raises
        ------
        OptionError
            If there is no such curve, or `of` is needed, or the curve is not defined.
        """
        kind = {"roc": "score", "precision_recall": "score", "gain": "score", "lift": "cluster"}.get(name)
        if kind is None:
            msg = f"there is no curve {name!r}; there are roc, precision_recall, gain, lift"
            raise OptionError(msg)
        engine, column, state = self._counts(kind, of, f"{name} curve")
        if kind == "score":
            [path, *areas] = engine.finalize([(state, [ScorePath(), RocAuc(half=False), PrAuc(half=False)])])[0]
            return score_curve(name, path, state, *areas)
        [table, area] = engine.finalize([(state, [AllSizes(), Aul(self._threshold)])])[0]
        return lift_curve(table, self._threshold, area.value, column)

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
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score").confusion(0.4)
        ConfusionMatrix2(rows=[[1, 1], [1, 1]])
        """
        engine, _, state = self._counts("score", of, "2×2 table")
        return ConfusionMatrix2(*engine.finalize([(state, [ConfusionAt(threshold)])])[0][0])

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
            "bound",
        ]
        floats = {"value", "lower", "upper", "stderr", "threshold", "bound"}
        kinds = {"exact": pa.bool_(), "rows": pa.int64(), "positives": pa.int64()}
        columns = {
            name: pa.array(
                [None if row.get(name) is None else float(row[name]) if name in floats else row[name] for row in rows],
                pa.float64() if name in floats else kinds.get(name, pa.string()),
            )
            for name in names
        }
        return pa.table(columns)


def finalize_all(
    engine: Engine | ClusterEngine,
    names: Sequence[str],
    plan: Plan,
    wanted: Sequence[MetricRequest],
    folded: Folded,
    *,
    threshold: float,
) -> Evaluation:
    """Finalize what was folded, and put the results together.

    Parameters
    ----------
    engine : what the run shares
    names : the inputs, as messages name them
    plan : what was folded
    wanted : the states and their metrics, those of classes last
    folded : the states
    threshold : that of the lift curve, whether or not its area is among the metrics

    Raises
    ------
    DataError
        If labels or weights cannot be evaluated, or there are no rows.
    """
    labels: LabelCounts = folded.states[plan.label]
    where = f"{names[0]} and the other files" if len(set(names)) > 1 else names[0]
    _check_labels(labels, where, folded.skipped)
    answered = [(w, folded.states[w.spec]) for w in wanted]
    if plan.weight is not None:
        for w, state in answered:
            _check_weights(state, w, f"{where}: weight column {plan.weight!r}")
    dropped = {"null label": labels.null}
    for w, state in answered:
        for reason, rows in _dropped(state, w):
            dropped.setdefault(reason, rows)  # a second state of the column may be of a sample of them
    return Evaluation(
        labels.neg + labels.pos,
        labels.pos,
        tuple(_results(engine, answered, None if labels.pos else plan.label.pos_label)),
        tuple((reason, rows) for reason, rows in dropped.items() if rows),
        tuple(folded.skipped),
        {(w.group, w.of): state for w, state in answered},
        engine,
        threshold,
    )


def _check_labels(labels: LabelCounts, where: str, skipped: Sequence[tuple[str, str]]) -> None:
    """Raise if the labels cannot be evaluated, or there are none."""
    try:
        labels.check()
    except LabelError as error:
        msg = f"{where}: {error}"
        raise LabelError(msg) from None
    if not labels.totals().rows and not labels.null:
        reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        msg = f"there are no rows to evaluate{reason}"
        raise MissingInputError(msg)


def _check_weights(state: Any, wanted: MetricRequest, which: str) -> None:
    """Raise if the weights of a score are so small or large together that their products are no float64."""
    if wanted.group == "score":
        neg, pos = state.totals().neg_weight, state.totals().pos_weight
        if wanted.spec.nan == "half":
            neg, pos = neg + float(state.nan_weights[0]), pos + float(state.nan_weights[1])
        if neg and pos and not _WEIGHTS[0] < neg * pos < _WEIGHTS[1]:
            msg = f"{which} sums to {neg:g} and {pos:g}, too far from 1 to multiply; scale the weights"
            raise WeightError(msg)


def _results(
    engine: Engine | ClusterEngine, answered: Sequence[tuple[MetricRequest, Any]], absent: Any
) -> Iterator[Scalar]:
    """Results of all states, those of classes one after the other; `absent` is a positive label that no row has."""
    plain = sum(w.group != "classes" for w, _ in answered)  # they come first
    values = engine.finalize([(state, w.metrics) for w, state in answered[:plain]])
    for w, state in answered[plain:]:
        values.append(engine.compare(state, w.metrics))
        engine.budget.release_spares()
    for (w, state), row in zip(answered, values, strict=True):
        rows, positives = _evaluated_rows(state, w)
        for value in row:
            reason = value.reason if absent is None or not value.reason else f"no row has the label {absent!r}"
            yield replace(value, of=w.of, rows=rows, positives=positives, reason=reason)


def _dropped(state: Any, wanted: MetricRequest) -> list[tuple[str, int]]:
    """Rows that a state left out, by reason."""
    if wanted.group in ("score", "sample"):
        return [(f"NaN or null score {wanted.of}", int(state.nan_rows.sum()) if wanted.spec.nan == "drop" else 0)]
    cluster = f"null cluster {wanted.of}"
    if wanted.group == "classes":
        no_cluster, no_class = state.dropped_rows.tolist()
        return [(cluster, no_cluster), (f"null class {wanted.spec.classes} (with {wanted.of})", no_class)]
    return [(cluster, int(state.dropped_rows.sum()))]


def _evaluated_rows(state: Any, wanted: MetricRequest) -> tuple[int, int]:
    """Rows and positives that a state's metrics were computed from."""
    total = state.totals()
    if wanted.group in ("score", "sample") and wanted.spec.nan == "half":
        return total.rows + int(state.nan_rows.sum()), total.pos + int(state.nan_rows[1])
    return total.rows, total.pos
