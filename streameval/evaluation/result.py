"""The result of an evaluation: values, curves, tables and output formats; and rules, a gate before a launch."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval import __version__
from streameval.errors import OptionError
from streameval.evaluation.drawing import Drawing
from streameval.metrics.catalogue import entry_of
from streameval.metrics.selection import meant_by
from streameval.report.terminal import Shown, render
from streameval.results import Judgement, Scalar, Source, slice_name, to_arrow
from streameval.rules import DRIFTS, EVERY, FACTS, LIVE, Rule, difference, judge, judge_slices, named_rules
from streameval.saving import LINEAGE, Saved
from streameval.scan.derived import slicing
from streameval.states.grouped.keys import UNIT_HASH
from streameval.wording import canonical, few, nearest, shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from rich.console import RenderableType

    from streameval.engine import Engine
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.request import Request
    from streameval.evaluation.slices import SlicedStates
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.resampling import Resampled
    from streameval.report.elements import Section
    from streameval.report.evaluation import Evidence
    from streameval.report.exports import Sample
    from streameval.report.values import Meaning
    from streameval.results import LabelStratum
    from streameval.states.protocol import State

    Rules = str | Iterable[str] | dict[str, str]


def rules_of_data(given: Rules) -> list[Rule]:
    """Rules that can be judged on data alone, without other nights.

    Raises
    ------
    OptionError
        If a rule is malformed, or refers to nights.

    Examples
    --------
    >>> rules_of_data("aul drop <= 0.01")
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: 'aul drop <= 0.01' compares nights: judge those of a store (streameval check)
    """
    rules = named_rules(given)
    for rule in rules:
        if rule.how or rule.always or rule.metric in (*LIVE, *DRIFTS, "nulls"):
            compares = rule.how or rule.always or rule.metric in DRIFTS
            what = "compares nights" if compares else f"speaks of {rule.metric}, which nights have"
            raise OptionError(f"{rule.text!r} {what}: judge those of a store (streameval check)")
    return rules


def complete_options(rules: Sequence[Rule], options: Mapping[str, Any]) -> dict[str, object]:
    """Options that rules need and that are not given: an interval level, and baselines for differences.

    Examples
    --------
    >>> complete_options(rules_of_data("roc_auc[b] - roc_auc[a] >= 0 proven @90%"), {"score": ["a", "b"]})
    {'ci': 0.9, 'baseline': ['a']}
    """
    levels = [rule.level for rule in rules if rule.level is not None]
    more: dict[str, Any] = {"ci": max(levels)} if levels and not options.get("ci") else {}
    given = list(options.get("by") or ())
    slicings = [dict.fromkeys(slicing(text)) for text in given]
    lacking = [r for r in rules if r.slices and r.slices != EVERY and not any(map(r.values_of, slicings))]
    if by := [",".join(column for column, _ in rule.slices) for rule in lacking]:
        more["by"] = list(dict.fromkeys([*given, *by]))
    if bases := [rule.than for rule in rules if rule.than is not None and rule.level is not None]:
        more["baseline"] = list(dict.fromkeys([*options.get("baseline", ()), *bases]))
    elif any(rule.than is not None for rule in rules):
        more["common_rows"] = True
    return more


def check_computed(rules: Sequence[Rule], request: Request) -> None:
    """Raise `OptionError`, before data are read, if a rule judges a metric that the request does not compute."""
    by_family = {"score": request.scores, "sample": request.scores, "sketch": request.sketches}
    by_family |= dict.fromkeys(("cluster", "classes"), request.clusters)
    computed = {metric.name: columns for name, columns in by_family.items() for metric in request.selection.of(name)}
    for rule in rules:
        rule.check_basis(late=request.late is not None, sampled=request.design is not None)
        if rule.slices == EVERY and not request.slicing.keys:
            raise OptionError(f"{rule.text!r} judges every slice: name the slicing column (--by)", "by")
        if rule.metric in FACTS:
            continue
        names = [name for name in (rule.metric, canonical(rule.metric)) if name in computed]
        if not names:
            near = meant_by(rule.metric) or nearest(rule.metric, computed)
            said = near if near and " " in near else repr(near)
            remedy = f"did you mean {said}?" if near else f"there are {few(list(computed))}"
            raise OptionError(
                f"{rule.text!r}: no {rule.metric} is computed; {remedy} (--metric names those to compute)"
            )
        columns = computed[names[0]]
        for of in (rule.of,) if rule.than is None else (rule.of, rule.than):
            if of is None and len(columns) > 1:
                raise OptionError(f"{rule.text!r}: {rule.metric} is of {', '.join(columns)}; say which in brackets")
            if of is not None and of not in columns:
                raise OptionError(
                    f"{rule.text!r}: no {rule.metric} of {of!r} is computed; it is of {', '.join(columns)}"
                )


def _of_slices(rule: Rule, results: Sequence[Scalar], estimates: Sequence[Estimated]) -> list[Scalar]:
    """What a rule judges in every slice of its slicing; intervals hold for all judged slices together.

    Raises
    ------
    OptionError
        If the rows were not sliced this way, several columns have the metric, or there are no intervals.
    """
    sliced = [r for r in results if r.slice and rule.values_of(r.slice)]
    if not sliced:
        names = ",".join(column for column, _ in rule.slices if column != "*")
        raise OptionError(f"{rule.text!r}: there are no slices{f' by {names}' if names else ''}; name them (--by)")
    named = [r for r in sliced if r.metric in (rule.metric, canonical(rule.metric)) and r.baseline is None]
    own = _of_column(rule, named, rule.of)
    for one in own:
        rule.check_basis(late=one.basis is not None)
    certain = own
    if rule.than is not None:
        pairs = zip(own, _of_column(rule, named, rule.than), strict=True)
        certain = [replace(difference(one, other), slice=one.slice) for one, other in pairs]
    if rule.interval_level is None:
        return certain
    number = sum(rule.judges(one.slice or {}) and one.value == one.value for one in certain)
    level = 1 - (1 - rule.interval_level) / max(number, 1)
    replicates = {(e.own.scalar.metric, e.own.scalar.of, slice_name(e.own.scalar.slice)): e for e in estimates}
    if not replicates:
        raise OptionError(f"{rule.text!r}: no sampling intervals were asked for; evaluate with ci=0.95 (--ci)")
    found = []
    for one, value in zip(own, certain, strict=True):
        new, old = (replicates.get((one.metric, of, slice_name(one.slice))) for of in (one.of, rule.than))
        if new is None or one.value != one.value:
            found.append(value)
        else:
            found.append(_add_interval(value, new.own if old is None else new.paired, old and old.paired, level))
    return found


def _of_column(rule: Rule, named: Sequence[Scalar], column: str | None) -> list[Scalar]:
    """The results of slices of one column, which is the only one if None."""
    own = [r for r in named if column in (None, r.of)]
    if len(of := list(dict.fromkeys(r.of for r in own))) != 1:
        there = f"it is of {', '.join(map(str, of))}; say which in brackets" if of else "it was not computed"
        raise OptionError(f"{rule.text!r}: {rule.metric} of slices: {there}")
    return own


def _fact(rule: Rule, evaluation: Evaluation) -> Scalar:
    """The number or share of rows or known positives that a rule judges."""
    labels, positives = evaluation.labels, evaluation.positives
    counts = {"rows": evaluation.rows, "positives": labels.get("labelled_positives", positives)}
    rule.check_basis(late=False, sampled=positives is None and counts["positives"] is not None)
    if (count := counts[rule.metric]) is None:
        return Scalar.undefined(rule.metric, "no label was read")
    number = count / (labels.get("labelled_rows", evaluation.rows) or math.nan) if rule.share else count
    return replace(Scalar.certain(rule.metric, number), reason="no rows" if number != number else None)


def _value(rule: Rule, result: Callable[..., Scalar], estimate: Callable[..., Estimate]) -> Scalar:
    """The value that a rule judges, with its interval at the level of the rule.

    Parameters
    ----------
    rule : the rule
    result : returns the result of a metric and column
    estimate : returns the same result with its replicates; called with ``paired=True`` for a difference
    """
    one = result(rule.metric, rule.of)
    rule.check_basis(late=one.basis is not None)
    certain = one if rule.than is None else difference(one, result(rule.metric, rule.than))
    if rule.interval_level is None:
        return certain
    if rule.than is None:
        return _add_interval(certain, estimate(rule.metric, one.of), None, rule.interval_level)
    new, old = (estimate(rule.metric, of, paired=True) for of in (rule.of, rule.than))
    return _add_interval(certain, new, old, rule.interval_level)


def _add_interval(certain: Scalar, new: Estimate, old: Estimate | None, level: float) -> Scalar:
    """A value, or a difference with its certain bounds, with its interval at a level."""
    if old is None:
        return new.scalar_with(level)
    sampled = new.minus(old).scalar_with(level)
    return replace(sampled, lower=certain.lower, upper=certain.upper, exact=certain.exact)


_WORST = 5  # clusters and classes in each table of a page


@dataclass(frozen=True, repr=False)
class Evaluation(Drawing, Shown, Saved):
    """The result of an evaluation.

    Attributes
    ----------
    rows, positives : int
        Rows evaluated, and the positives among them; `positives` is None if no label was read, or labels are a sample.
    results : tuple of Scalar
        All results: of all rows, then of slices and differences.
    dropped : tuple of (reason, rows)
        Rows left out.
    skipped : tuple of (file, reason)
        Files left out: unreadable ones under ``on_error="skip"``, and those that are not Parquet.
    options : dict
        The given options that affect the results, by name.
    source : Source
        Where the results come from: data, files, and the command that repeats the run.
    estimates : sequence of Estimated
        The results of all rows with their replicates, in the order of `results`; empty without sampling intervals.
        Each has two estimates: `own` for its interval, and `paired` for differences from other columns and other
        evaluations.
    slice_estimates : sequence of Estimated
        The same for the results of slices, slice by slice.
    counts : tuple of Scalar
        ``rows``, ``positives`` and ``prevalence`` with their sampling intervals, of a sample of labels ``prevalence``
        alone; empty without intervals.
    ci_level : float
        Level of the sampling intervals; None without them.
    labels : dict of str to int
        What became of labels from another table; empty without one. Statements that were ``read``; of these
        ``duplicates``, ``superseded`` by a later one, with ``null_ids``, or ``later`` than `labels_as_of`. Ids whose
        latest statements are ``withdrawn``, in ``conflicts``, ``used`` for rows, or ``orphans`` without a row. Then
        ``labelled_rows``, and ``rows_without_id``. Of a sample of labels, and of nights, ``labelled_rows`` and
        ``labelled_positives``.
    label_strata : tuple of LabelStratum
        The strata of a sample of labels, with the rows that the design weights of each sum up to; else empty.
    coarser_units : dict of str to float
        By which cluster and class columns the standard error is larger than by `unit`, and how many times: if rows
        depend on each other through one of them, intervals by `unit` are too narrow (for the first score).
    judgements : tuple of Judgement
        Judgements of rules, see `judge`.
    unit_hash : int
        Version of the hash that assigns units to blocks; evaluations of different versions cannot be compared.

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
    _states: dict[tuple[str, str], State] = field(default_factory=dict, compare=False)
    _engine: Engine | None = field(default=None, compare=False)
    _threshold: Any = field(default=1, compare=False)
    options: dict[str, Any] = field(default_factory=dict, compare=False)
    source: Source = field(default_factory=Source, compare=False)
    _estimates: Sequence[Estimated] = field(default=(), compare=False)
    ci_level: float | None = field(default=None, compare=False)
    _resampled: Mapping[tuple[str, str], Resampled] = field(default_factory=dict, compare=False)
    slice_estimates: Sequence[Estimated] = field(default=(), compare=False)
    counts: tuple[Scalar, ...] = field(default=(), compare=False)
    _more: Callable[[Evaluation], Sequence[Section]] | None = field(default=None, compare=False)
    judgements: tuple[Judgement, ...] = field(default=(), compare=False)
    _sliced: SlicedStates | None = field(default=None, compare=False)
    unit_hash: int = field(default=UNIT_HASH, compare=False)
    labels: dict[str, int] = field(default_factory=dict, compare=False)
    label_strata: tuple[LabelStratum, ...] = field(default=(), compare=False)
    coarser_units: dict[str, float] = field(default_factory=dict, compare=False)
    _again: Callable[[], Evaluation] | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Callable[..., Evaluation], tuple[object, ...]]:
        """Pickle results and estimates, but not the states: curves cannot be computed in another process."""
        public = {one.name: getattr(self, one.name) for one in fields(self) if not one.name.startswith("_")}
        return partial(Evaluation, **public, _estimates=tuple(self.estimates)), ()

    def render(self, *, plain: bool = False) -> RenderableType:
        """The tables of a terminal; plain ones have no rules."""
        return render(self, plain=plain)

    def _repr_html_(self) -> str:
        """The values as a small table, for a notebook."""
        from streameval.report.elements import html_of_tables
        from streameval.report.evaluation import headline_tables

        return html_of_tables(headline_tables(self, self.meanings()))

    def judge(self, rules: str | Sequence[str] | Mapping[str, str]) -> Evaluation:
        """Judge the evaluation by rules; returns a copy with `judgements`. See `streameval.rules`.

        Parameters
        ----------
        rules : texts of rules, or a mapping from names to texts

        Raises
        ------
        OptionError
            If a rule is malformed, refers to nights, or needs a metric or a sampling interval that was not computed.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> result = evaluate(data, score="score").judge(["roc_auc >= 0.7", "rows >= 100"])
        >>> [one.outcome for one in result.judgements], result.passed
        (['passed', 'failed'], False)
        """
        judgements = []
        for rule in rules_of_data(rules):
            if rule.slices:
                judgements.append(judge_slices(rule, _of_slices(rule, self.results, self.slice_estimates)))
                continue
            fact, result = rule.metric in FACTS, partial(self._find, slice=None)
            value = _fact(rule, self) if fact else _value(rule, result, self._estimate)
            ends = (None, None) if rule.level is None else (value.ci_lower, value.ci_upper)
            judgement = replace(judge(rule, value), ci_lower=ends[0], ci_upper=ends[1], ci_level=rule.interval_level)
            judgements.append(judgement)
        return replace(self, judgements=tuple(judgements))

    @property
    def passed(self) -> bool:
        """Whether every rule of `judgements` passed."""
        return all(one.passed for one in self.judgements)

    def to_dict(self) -> dict[str, object]:
        """Plain values, as in the command line's JSON.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> found = evaluate(data, score="score", metrics="roc_auc").to_dict()
        >>> found["rows"], found["results"][0]["value"]
        (4, 0.75)
        """
        return {
            "streameval": __version__,
            "options": self.options,
            **({"timezones": dict(self.source.zones)} if self.source.zones else {}),
            **({} if self.ci_level is None else {"unit_hash": self.unit_hash}),
            "rows": self.rows,
            "positives": self.positives,
            **({"labels": self.labels} if self.labels else {}),
            **({"label_strata": [one._asdict() for one in self.label_strata]} if self.label_strata else {}),
            **({"coarser_units": self.coarser_units} if self.coarser_units else {}),
            **({"counts": [count.to_dict() for count in self.counts]} if self.counts else {}),
            "results": [result.to_dict() for result in self.results],
            "dropped": [{"reason": reason, "rows": rows} for reason, rows in self.dropped],
            "skipped": [{"partition": name, "reason": reason} for name, reason in self.skipped],
            **({"rules": [one.to_dict() for one in self.judgements]} if self.judgements else {}),
        }

    def to_arrow(self) -> pa.Table:
        """A table with one row per result; see `streameval.results.to_arrow`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score", metrics="roc_auc").to_arrow().select(["metric", "value"]).to_pylist()
        [{'metric': 'roc_auc', 'value': 0.75}]
        """
        return to_arrow(self.results)

    def scalars(self) -> dict[str, float]:
        """All values as a flat mapping, for trackers of experiments and for files of settings.

        Names consist of ``A-Za-z0-9_./-`` alone: the metric, the column and the slice, such as
        ``tpr_at_fpr_0.001/score/country_DE``, and ``/ci_lower`` and ``/ci_upper`` after the metric for the ends of its
        interval, ``/labelled`` and ``/strata`` for those of a sample of labels; ``rows`` and ``positives`` count all
        rows. Undefined values are NaN. With MLflow:
        ``mlflow.log_metrics(evaluation.scalars())``.

        Returns
        -------
        dict of str to float

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score", metrics="tpr@*", at="fpr=0.001").scalars()
        {'rows': 4.0, 'positives': 2.0, 'tpr_at_fpr_0.001/score': 0.5}
        """
        from streameval.report.exports import flat, samples_of

        return flat([*self._counted(), *samples_of(self.results)])

    def exports(self) -> Mapping[str, Callable[[], str]]:
        """What makes the Prometheus text format and, with judgements, the assertions of OpenLineage."""
        from streameval.report import exports

        rules = exports.samples_of_rules(self.judgements)
        about = {name: meaning.line for name, meaning in self.meanings().items()}
        samples = [*self._counted(), *exports.samples_of(self.results), *rules]
        texts = {"prom": lambda: exports.prometheus(samples, about)}
        lineage = partial(exports.openlineage, self.judgements, self.source.data, "evaluate", datetime.now(UTC))
        return {**texts, LINEAGE: lineage} if self.judgements else texts

    def _counted(self) -> list[Sample]:
        from streameval.report.exports import Sample

        rows = Sample("rows", {}, self.rows, "Rows that were evaluated.")
        return [rows] if self.positives is None else [rows, Sample("positives", {}, self.positives, "Positive rows.")]

    def to_html(self) -> str:
        """The text of a self-contained HTML page with values, curves and tables.

        The states of the evaluation are read once more for the curves.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> "ROC AUC of score is 0.7500." in evaluate(data, score="score").to_html()
        True
        """
        from streameval.report.elements import html_of
        from streameval.report.evaluation import evaluation_page

        return html_of(evaluation_page(self, self.evidence()))

    def evidence(self) -> Evidence:
        """The content of a page in addition to the results: curves, distributions, meanings, costs and the source."""
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
        rules = "".join(f" --rule {shell([one.text])}" for one in self.judgements)
        source = replace(self.source, command=f"{self.source.command}{rules}") if self.source.command else self.source
        curves, costs = self.curves(*names), self.attributions(_WORST)
        return Evidence(curves, distributions, points, meanings, source, more, self.judgements, costs)

    def meanings(self) -> dict[str, Meaning]:
        """The meaning, better end, family and subject of each metric in the catalogue.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score", metrics="roc_auc").meanings()["roc_auc"].better
        'higher'
        """
        from streameval.report.values import Meaning

        rows = {result.metric: entry_of(result.metric) for result in self.results}
        return {n: Meaning(row.meaning, row.better, row.family, row.subject) for n, row in rows.items() if row}
