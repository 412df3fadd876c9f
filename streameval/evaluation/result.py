"""What an evaluation found: results, curves, tables, and how they leave the process."""

from __future__ import annotations

import json
import math
import shlex
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.arrays.contingency.table import ConfusionMatrix2
from streameval.errors import OptionError
from streameval.evaluation.curves import BANDED, curves_of, with_band
from streameval.evaluation.families import FAMILIES
from streameval.evaluation.intervals import concluded
from streameval.evaluation.judging import judged
from streameval.evaluation.resampling import LEVEL
from streameval.metrics.catalogue import Selection, entry_of
from streameval.metrics.curves import curve_kind
from streameval.metrics.finalize import in_rounds
from streameval.metrics.scores.distribution import ScoreRange
from streameval.metrics.scores.group_means import GroupQuantiles, has_mean
from streameval.metrics.scores.point_table import point_table, pointed
from streameval.metrics.scores.threshold import ConfusionAt, TablesAt
from streameval.options.kinds import of_column
from streameval.results import Source, same_slice, slice_table, to_arrow
from streameval.saving import save
from streameval.states.scores.missing import numbers_only
from streameval.wording import canonical

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from streameval.engine import Engine
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.judging import Judged
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.resampling import Resampled
    from streameval.report.elements import Section
    from streameval.report.evaluation import Evidence
    from streameval.report.values import Meaning
    from streameval.results import Curve, Distribution, Scalar

__all__ = ["Evaluation"]


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes
    ----------
    rows, positives : rows evaluated, and how many of them are positive; None where no label was read
    results : tuple of Scalar
    dropped : tuple of (reason, rows) left out
    skipped : tuple of (file, reason) left out
    options : the options that were given, by name, as far as they decide the results
    source : where the results come from: data, files, and the command that repeats them
    judgements : what rules said of it, see `judge`

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
    positives: int | None
    results: tuple[Scalar, ...]
    dropped: tuple[tuple[str, int], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    _states: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False, compare=False)
    _engine: Engine | None = field(default=None, repr=False, compare=False)
    _threshold: Any = field(default=1, repr=False, compare=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    source: Source = field(default_factory=Source, repr=False, compare=False)
    _estimates: tuple[Estimated, ...] = field(default=(), repr=False, compare=False)
    _level: float | None = field(default=None, repr=False, compare=False)
    _resampled: Mapping[tuple[str, str], Resampled] = field(default_factory=dict, repr=False, compare=False)
    _more: Callable[[Evaluation], Sequence[Section]] | None = field(default=None, repr=False, compare=False)
    judgements: tuple[Judged, ...] = field(default=(), repr=False, compare=False)

    def __reduce__(self) -> tuple[Callable[..., Evaluation], tuple[Any, ...]]:
        """Carry the results and estimates to another process, not the states: curves must be drawn before."""
        made = partial(
            Evaluation,
            options=self.options,
            source=self.source,
            _estimates=self._estimates,
            _level=self._level,
            judgements=self.judgements,
        )
        return made, (self.rows, self.positives, self.results, self.dropped, self.skipped)

    def __str__(self) -> str:
        from streameval.report import text

        return text(self)

    def _repr_html_(self) -> str:
        """The values as a small table, for a notebook."""
        from streameval.report.evaluation import headline_tables
        from streameval.report.html import html_of_tables

        return html_of_tables(headline_tables(self, self.meanings()))

    def _find(self, metric: str, of: str | None, slice: Mapping[str, Any] | None) -> Scalar:  # noqa: A002 - as users name it
        results = [r for r in self.results if same_slice(r.slice, slice)]
        if not results:
            slicings = "; ".join(dict.fromkeys(",".join(r.slice) for r in self.results if r.slice))
            msg = f"there is no slice {slice!r}; there are slices by: {slicings or 'nothing, since by was not given'}"
            raise OptionError(msg)
        names = {metric, canonical(metric)}
        found = [r for r in results if r.metric in names and of in (None, r.of)]
        if len(found) == 1:
            return found[0]
        have = ", ".join(sorted({f"{r.metric} of {r.of}" for r in results}))
        problem = (
            "was not computed"
            if not found
            else f"was computed of {', '.join(str(r.of) for r in found)}; say which with of="
        )
        msg = (
            f"{metric}{f' of {of}' if of else ''} {problem}; there are: {have}" if not found else f"{metric} {problem}"
        )
        raise OptionError(msg)

    def value(self, metric: str, of: str | None = None, slice: Mapping[str, Any] | None = None) -> float:  # noqa: A002
        """Value of a metric; `of` names the score or cluster column where there are several.

        With `slice`, such as ``{"country": "DE"}``, the value of that slice; dates and times are texts there.

        Raises
        ------
        OptionError
            If it was not computed, or `of` is needed, or there is no such slice.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.8, 0.3], "country": ["DE", "DE", "FR", "FR"]})
        >>> result = evaluate(data, score="score", by="country")
        >>> result.value("roc_auc"), result.value("roc_auc", slice={"country": "FR"})
        (0.5, 0.0)
        """
        return self._find(metric, of, slice).value

    def slices(self, column: str) -> pa.Table:
        """One row for each slice of a slicing, such as ``"country"`` or ``"country,channel"``; most rows first.

        The columns are the slicing columns, `rows`, `positives`, and the value of each metric, such as
        ``roc_auc[score]``; null where it is undefined.

        Raises
        ------
        OptionError
            If there is no such slicing.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 1], "score": [0.1, 0.4, 0.8], "country": ["DE", "DE", None]})
        >>> evaluate(data, score="score", by="country", metrics="roc_auc").slices("country").to_pylist()[0]
        {'country': 'DE', 'rows': 2, 'positives': 1, 'roc_auc[score]': 1.0}
        """
        return slice_table(self.results, column)

    def interval(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> tuple[float, float]:
        """Ends of the interval that is certain to hold the exact value.

        NaN where the value is not defined, and where it was sampled: then nothing is certain, and the result's `bound`
        and `stderr` say what is likely, see `streameval.metrics.scores.gain_sampled`.
        """
        result = self._find(metric, of, slice)
        return result.lower, result.upper

    def ci(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> tuple[float, float]:
        """Ends of the sampling interval: where the value of other data drawn alike would lie; see `ci` of `evaluate`.

        NaN where there is none; then the result's `ci_reason` says why.

        Raises
        ------
        OptionError
            As `value`, and if no intervals were asked for.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa
        >>> from streameval import evaluate
        >>> label, noise = np.arange(2000) % 2, np.random.default_rng(0).normal(size=2000)
        >>> result = evaluate(pa.table({"label": label, "score": label + noise}), score="score", ci=0.95)
        >>> [round(end, 2) for end in result.ci("roc_auc")]
        [0.74, 0.78]
        """
        result = self._find(metric, of, slice)
        if result.ci_level is None:
            msg = "no sampling intervals were asked for; evaluate with ci=0.95 (--ci)"
            raise OptionError(msg)
        ends = (math.nan if end is None else end for end in (result.ci_lower, result.ci_upper))
        return next(ends), next(ends)

    def difference(self, metric: str, a: str, b: str, margin: float | None = None) -> Scalar:
        """How much more a metric is of column `b` than of column `a`: b − a, paired over the same units.

        Parameters
        ----------
        metric : its name
        a, b : columns of one kind; `a` is the baseline
        margin : a difference within ± `margin` does not matter; the verdict is ``equivalent`` where it is shown to be

        Returns
        -------
        Scalar
            With ``of="b − a"``, `stderr`, `ci_lower`, `ci_upper`, `verdict`, and `p_value` of this comparison alone.

        Raises
        ------
        OptionError
            If the metric was not computed of both, or no intervals were asked for.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa
        >>> from streameval import evaluate
        >>> label, noise = np.arange(2000) % 2, np.random.default_rng(0).normal(size=(2, 2000))
        >>> table = pa.table({"label": label, "v1": label + noise[0], "v2": 2 * label + noise[1]})
        >>> found = evaluate(table, score=["v1", "v2"], ci=0.95).difference("roc_auc", "v1", "v2")
        >>> found.of, round(found.value, 2), found.verdict
        ('v2 − v1', 0.17, 'better')
        """
        one, other = (self._estimate(metric, of, paired=True) for of in (b, a))
        return concluded(one.minus(other), self._level or LEVEL, margin)

    def _estimate(self, metric: str, of: str | None, *, paired: bool = False) -> Estimate:
        """The estimate of a result; `paired` for one that is compared."""
        name = self._find(metric, of, None).metric
        found = [e.paired if paired else e.own for e in self._estimates]
        found = [e for e in found if (e.scalar.metric, e.scalar.of) == (name, of)]
        if not found:
            msg = "no sampling intervals were asked for; evaluate with ci=0.95 (--ci)"
            raise OptionError(msg)
        return found[0]

    def group_values(self, metric: str, of: str | None = None) -> pa.Table:
        """Deciles of the values of the groups of `mean_over`, each group counted once.

        The columns are `share`, from 0 to 1, and `value`: the smallest value that this share of the groups does not
        exceed. Groups without both classes are left out. Exact; the states of the evaluation are read twice more.

        Raises
        ------
        OptionError
            If there are no groups, or `of` is needed, or the metric has no mean over groups.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.2, 0.3, 0.9], "user": ["a", "a", "b", "b"]})
        >>> evaluate(data, score="score", mean_over="user").group_values("roc_auc")["value"].to_pylist()[4:7]
        [0.0, 0.0, 1.0]
        """
        import pyarrow as pa

        if self._engine is not None and not any(name == "groups" for name, _ in self._states):
            msg = f"there are no groups, so {metric} has no values by group: name their column (mean_over)"
            raise OptionError(msg)
        engine, _, state = self._counts("groups", of, "table of group values", metric)
        found = [each for each in Selection(("score",), (canonical(metric),)).of("score") if has_mean(each)]
        if len(found) != 1:
            msg = f"{metric} has no mean over groups; there are roc_auc, average_precision and precision@k=N"
            raise OptionError(msg)
        [[deciles]] = in_rounds(engine.finalize, [(state, [GroupQuantiles(found[0])])])
        columns = {name: [pair[i] for pair in deciles.pairs] for i, name in enumerate(("share", "value"))}
        return pa.table(columns, schema=pa.schema({name: pa.float64() for name in columns}))

    def _counts(self, family: str, of: str | None, what: str, default: str) -> tuple[Engine, str, Any]:
        """The engine, the one column of a family that is meant, and its state."""
        have = [column for name, column in self._states if name == family]
        found = [column for column in have if of in (None, column)]
        if len(found) == 1 and self._engine is not None:
            return self._engine, found[0], self._states[family, found[0]]
        if self._engine is None:
            msg = f"the {what} needs the counts of the run, which stay in its process: take it there"
        elif have:
            msg = f"name the {family} column of the {what} with of=; there are: {', '.join(have)}"
        elif any(FAMILIES[name].column == family for name, _ in self._states):
            msg = f"there is no {what}, since none of its metrics was asked for: add {default} to metrics"
        else:
            msg = f"there is no {what}, since no {family} column was evaluated: name one (--{family})"
        raise OptionError(msg)

    def curve(self, name: str, of: str | None = None) -> Curve:
        """A curve for drawing.

        At most 10,000 points; the area is that of the full curve, without NaN scores whatever `nan` says. The states of
        the evaluation are read once more. Where the evaluation has sampling intervals, ``roc``, ``precision_recall``
        and ``gain`` have a band of pointwise intervals.

        Parameters
        ----------
        name : str
            Of a score: ``roc``, ``precision_recall``, ``gain``, ``reliability`` (ten bins of equal width, a
            `Reliability`; ``reliability@20`` has other bins, ``reliability@20/equal_count`` as many rows in each),
            ``corp`` (the isotonic fit). Of a cluster column: ``lift``, ``purity`` (share of positives by size).
        of : str, optional
            The score or cluster column, where there are several.

        Raises
        ------
        OptionError
            If there is no such curve, or `of` is needed, or the curve is not defined.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.25, 0.25, 0.5, 0.75]})
        >>> found = evaluate(data, score="score").curve("reliability@2")
        >>> found.x.tolist(), found.y.tolist(), found.counts.tolist()
        ([0.3333333333333333, 0.75], [0.3333333333333333, 1.0], [3.0, 1.0])
        """
        kind = curve_kind(name)
        engine, column, state = self._counts(kind.family, of, f"{name} curve", kind.default)
        state = kind.drawn(state)
        threshold = of_column(self._threshold, column)
        values = engine.finalize([(state, kind.metrics(threshold))])[0]
        curve = kind.make(values, state, column, threshold)
        resampled = self._resampled.get((kind.family, column))
        if resampled is None or name not in BANDED:
            return curve
        return with_band(curve, kind, resampled, threshold, self._level or LEVEL)

    def distribution(self, of: str | None = None, bins: int = 100) -> Distribution:
        """How the scores of each class are distributed, for drawing.

        The states of the evaluation are read twice. NaN scores are left out; infinite ones are counted apart.

        Parameters
        ----------
        of : str, optional
            The score column, where there are several.
        bins : int
            Bins of equal width from the lowest score to the highest, at most 10,000.

        Raises
        ------
        OptionError
            If `of` is needed, there are no finite scores, or `bins` is not a number of bins.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.9]})
        >>> found = evaluate(data, score="score").distribution(bins=2)
        >>> found.edges.tolist(), found.negatives.tolist(), found.positives.tolist()
        ([0.1, 0.5, 0.9], [2.0, 0.0], [1.0, 1.0])
        """
        kind = ScoreRange(bins)
        engine, _, state = self._counts("score", of, "distribution", "roc_auc")
        found: Distribution = in_rounds(engine.finalize, [(numbers_only(state), [kind])])[0][0]
        return found

    def columns(self, family: str) -> tuple[str, ...]:
        """The columns of a family, ``score`` or ``cluster``, whose curves can be taken here.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> evaluate(pa.table({"label": [0, 1], "score": [0.1, 0.9]}), score="score").columns("score")
        ('score',)
        """
        return tuple(column for name, column in self._states if name == family and self._engine is not None)

    def curves(self, *names: str) -> tuple[Curve, ...]:
        """The curves of these names of all columns, kind by kind; those that are not defined are left out.

        By default ``roc``, ``precision_recall``, ``gain`` and ``lift``. As `curve` gives them one by one, but the
        states are read once for all.

        Raises
        ------
        OptionError
            If there is no curve of a name.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> [curve.name for curve in evaluate(data, score="score").curves()]
        ['roc', 'precision_recall', 'gain']
        """
        kinds = [curve_kind(name) for name in names or ("roc", "precision_recall", "gain", "lift")]
        if self._engine is None:
            return ()
        return tuple(curves_of(self._engine, self._states, kinds, self._threshold))

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
        engine, _, state = self._counts("score", of, "2×2 table", "roc_auc")
        return ConfusionMatrix2(*engine.finalize([(state, [ConfusionAt(threshold)])])[0][0])

    def operating_points(self, of: str | None = None) -> pa.Table:
        """One row for each operating point (`at`) and each metric that chooses a threshold, such as `f1_max`.

        The columns are `of`, `at` (what was asked for), `threshold`, `tpr`, `fpr`, `precision`, `recall`, `f1`, `mcc`,
        `share` (of rows flagged; with weights, of the weight), `flagged` (rows), `tp`, `fp`, `fn`, `tn`; the expected
        cost of a row, such as ``cost@fp=1,fn=10``, for the costs of each ``cost_min`` that was asked for; then `metric`
        with its `value`, its certain ends `lower` and `upper` and whether it is `exact`, and the `reason` for nulls,
        such as the nearest point that can be reached. Rows at or above the threshold are flagged. The states of the
        evaluation are read once more.

        Under ``approx`` a threshold is an edge of a bin, at which the counts are exact; `lower` and `upper` hold what
        the best threshold of all gives. A ``threshold=T`` within a bin has no counts.

        Parameters
        ----------
        of : str, optional
            A score column; all by default.

        Raises
        ------
        OptionError
            If there is no such score, or its counts are in another process.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> found = evaluate(data, score="score", at=["recall=0.9", "fpr=0"], metrics="f1_max").operating_points()
        >>> found.select(["at", "threshold", "precision", "recall", "flagged"]).to_pylist()[1]
        {'at': 'recall=0.9', 'threshold': 0.35, 'precision': 0.6666666666666666, 'recall': 1.0, 'flagged': 3}
        """
        what = "table of operating points"
        columns = [of] if of is not None else self.columns("score")
        counted = [self._counts("score", column, what, "roc_auc") for column in columns]
        counted = counted or [self._counts("score", None, what, "roc_auc")]
        found = [pointed(self.results, column) for _, column, _ in counted]
        at = [tuple({r.threshold: None for r in rows.values() if r.threshold is not None}) for rows in found]
        jobs = [(state, [TablesAt(thresholds)]) for (*_, state), thresholds in zip(counted, at, strict=True)]
        listed = []
        values = counted[0][0].finalize(jobs)
        for (_, column, _), rows, thresholds, (tables,) in zip(counted, found, at, values, strict=True):
            given = dict(zip(thresholds, tables, strict=True))
            listed += [(column, asked, r, given[r.threshold] if r.threshold is not None else None)
                       for asked, r in rows.items()]  # fmt: skip
        return point_table(listed, self.results)

    def judge(self, rules: str | Sequence[str] | Mapping[str, str]) -> Evaluation:
        """The same evaluation with what rules say of it, in `judgements`; see `streameval.rules.grammar`.

        Parameters
        ----------
        rules : texts, or a mapping of names to texts

        Raises
        ------
        OptionError
            If a rule is malformed, speaks of nights, or needs what was not computed: another metric, or for a rule with
            a level sampling intervals.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> result = evaluate(data, score="score").judge(["roc_auc >= 0.7", "rows >= 100"])
        >>> [one.outcome for one in result.judgements], result.passed
        (['passed', 'failed'], False)
        """
        found = judged(
            rules, (self.rows, self.positives), lambda metric, of: self._find(metric, of, None), self._estimate
        )
        return replace(self, judgements=tuple(found))

    @property
    def passed(self) -> bool:
        """Whether every rule of `judgements` passed."""
        return all(one.passed for one in self.judgements)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the command line's JSON has them."""
        return {
            "streameval": __version__,
            "options": self.options,
            "rows": self.rows,
            "positives": self.positives,
            "results": [result.to_dict() for result in self.results],
            "dropped": [{"reason": reason, "rows": rows} for reason, rows in self.dropped],
            "skipped": [{"partition": name, "reason": reason} for name, reason in self.skipped],
            **({"rules": [one.to_dict() for one in self.judgements]} if self.judgements else {}),
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_arrow(self) -> pa.Table:
        """One row a result."""
        return to_arrow(self.results)

    def to_html(self) -> str:
        """One page with everything, as the text of an HTML file that needs nothing else.

        The states of the evaluation are read once more, for the curves.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> "ROC AUC of score is 0.7500." in evaluate(data, score="score").to_html()
        True
        """
        from streameval.report.evaluation import evaluation_page
        from streameval.report.html import html_of

        return html_of(evaluation_page(self, self.evidence()))

    def evidence(self) -> Evidence:
        """What a page shows beside the results: curves, distributions, meanings and the source."""
        from streameval.report.evaluation import Evidence

        meanings = self.meanings()
        names = ["roc", "precision_recall", "gain", "lift", "purity"]
        names += ["reliability", "corp"] * any(known.subject == "calibration" for known in meanings.values())
        distributions = []
        for column in self.columns("score"):
            with suppress(OptionError):
                distributions.append(self.distribution(column))
        more = self._more(self) if self._more is not None else ()
        points: list[dict[str, Any]] = []
        if any(r.threshold is not None and r.slice is None and r.baseline is None for r in self.results):
            with suppress(OptionError):
                points = self.operating_points().to_pylist()
        told = "".join(f" --rule {shlex.quote(one.text)}" for one in self.judgements)
        source = replace(self.source, command=f"{self.source.command}{told}") if self.source.command else self.source
        return Evidence(self.curves(*names), distributions, points, meanings, source, more, self.judgements)

    def meanings(self) -> dict[str, Meaning]:
        """What the catalogue says of each metric."""
        from streameval.report.values import Meaning

        rows = {result.metric: entry_of(result.metric) for result in self.results}
        return {n: Meaning(row.meaning, row.better, row.family, row.subject) for n, row in rows.items() if row}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file that ends in ``.json``, ``.csv``, ``.parquet`` or ``.html``.

        Tables have one row a result, as `to_arrow`. A file that is there is replaced once the new one is whole.

        Raises
        ------
        OptionError
            If the name has another ending.
        StreamevalError
            If it cannot be written.
        """
        save(path, {"json": lambda: self.to_json(indent=2) + "\n", "html": self.to_html}, self.to_arrow)
